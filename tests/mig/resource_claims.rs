//! Resource claims of Kubernetes that get an instance of MIG that did not exist.

use crate::bed::Bed;
use crate::support::until;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::Signal;
use rustix::fs::inotify;
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use tranche_protocol::{DraDevices, DraDivided, DraInstance};

const POLICY: &str = "version: v1\nkubernetes: {door: dra}\nmig: {onDemand: {devices: [0]}}\n";

const A: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const B: &str = "bbbbbbbb-0000-4000-8000-000000000002";

/// A machine on whose first GPU, which is empty, instances are made on demand.
fn bed() -> Bed {
    let bed = Bed::new("dgx-a100-mig");
    bed.apply("0:empty");
    bed.policy(POLICY);
    bed
}

/// Asks the broker; the error is its line without the hint.
fn ask(bed: &Bed, command: &str, mut request: Value) -> Result<Value, String> {
    request["version"] = json!(1);
    request["command"] = json!(command);
    let mut stream = UnixStream::connect(bed.at("state/broker.sock")).map_err(|e| e.to_string())?;
    writeln!(stream, "{request}").map_err(|e| e.to_string())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(|e| e.to_string())?;
    let answer: Value = serde_json::from_str(&line).map_err(|e| e.to_string())?;
    match answer.get("ok") {
        Some(ok) => Ok(ok.clone()),
        None => {
            let error = &answer["error"];
            let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
            Err(format!("{}: {}", text("object"), text("what")))
        }
    }
}

fn prepare(bed: &Bed, uid: &str, devices: &[&str]) -> Result<Vec<String>, String> {
    let devices: Vec<Value> = devices.iter().map(|device| json!({"device": device})).collect();
    let claim = json!({"namespace": "lab", "name": "train", "uid": uid});
    let request = json!({"claim": claim, "devices": devices, "asked_at": u64::MAX});
    let prepared = ask(bed, "prepare-claim", request)?;
    for given in prepared["given"].as_array().unwrap() {
        let uuid = given["uuid"].as_str().unwrap_or_default();
        assert!(
            uuid.starts_with("MIG-"),
            "the status of the claim names the instance: {given}"
        );
    }
    Ok(serde_json::from_value(prepared["cdi"].clone()).unwrap())
}

fn unprepare(bed: &Bed, uid: &str) {
    assert_eq!(ask(bed, "unprepare-claim", json!({"uid": uid})), Ok(json!({})));
}

fn devices(bed: &Bed) -> DraDevices {
    serde_json::from_value(ask(bed, "dra-devices", json!({})).unwrap()).unwrap()
}

/// The instances of the first GPU, by their places.
fn layout(bed: &Bed) -> String {
    let all = bed.layout(0);
    let mut all: Vec<&str> = all.split(',').collect();
    all.sort_by_key(|one| one.split_once('@').map(|(_, start)| start.to_owned()));
    all.join(",")
}

/// The GPU whose instances are made for claims.
fn divided(bed: &Bed) -> DraDivided {
    let mut all = devices(bed).divided;
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// The instances for which somebody else leaves no room, by name, with who that is.
fn held(bed: &Bed) -> Vec<(String, String)> {
    let all = divided(bed).instances.into_iter();
    all.filter_map(|one| Some((one.name, one.held_by?))).collect()
}

#[test]
fn each_place_of_each_profile_is_offered_and_no_device_of_that_gpu() {
    let bed = bed();
    let all = devices(&bed);
    let divided = divided(&bed);
    // 25 pairs of a profile and a place: the enumeration of another program.
    assert_eq!(divided.instances.len(), 25);
    assert_eq!(divided.instances[0].name, "gpu-0-mig-1g-5gb-19-at-6");
    assert_eq!(
        (divided.counters["memory-unit-7"], divided.counters["decoders"]),
        (1, 5)
    );
    let of_half = |one: &&DraInstance| one.name == "gpu-0-mig-3g-20gb-9-at-4";
    let half = divided.instances.iter().find(of_half).unwrap();
    let units = |one: &DraInstance| {
        one.consumes
            .keys()
            .filter(|name| name.starts_with("memory-unit"))
            .count()
    };
    assert_eq!(
        (units(half), half.consumes["decoders"], half.memory.mib()),
        (4, 2, 19_968)
    );
    assert!(!all.devices.is_empty() && all.devices.iter().all(|one| one.gpu.name != "gpu-0"));
    assert_eq!(held(&bed), []);
    // Those that are made are not offered as devices of their own.
    prepare(&bed, A, &["gpu-0-mig-3g-20gb-9-at-4"]).unwrap();
    assert_eq!(devices(&bed).devices, all.devices);
    // A GPU with a layout of the policy has what that says, and the other door leaves everything to the device plugin.
    for policy in [
        "version: v1\nkubernetes: {door: dra}\nmig: {layout: [\"0:empty\"], onDemand: {devices: [0]}}\n",
        "version: v1\nmig: {onDemand: {devices: [0]}}\n",
        "version: v1\nkubernetes: {door: dra, devices: [{devices: [0], door: none}]}\nmig: {onDemand: {devices: [0]}}\n",
    ] {
        bed.policy(policy);
        assert_eq!(devices(&bed).divided, [], "{policy}");
    }
    // Of a profile that the policy divides, claims have parts of what exists.
    bed.policy(&format!(
        "{POLICY}sharing: {{mps: {{resources: [{{name: nvidia.com/mig-1g.5gb, replicas: 2}}]}}}}\n"
    ));
    let left = self::divided(&bed).instances;
    assert!(left.len() == 18 && left.iter().all(|one| one.profile != "1g.5gb"));
}

#[test]
fn a_claim_gets_exactly_its_instance_and_it_ends_with_the_claim() {
    let bed = bed();
    let others = bed.layouts()[1..].to_vec();
    let cdi = prepare(&bed, A, &["gpu-0-mig-2g-10gb-14-at-2"]).unwrap();
    assert_eq!(cdi, [format!("nvidia.com/claim={A}-gpu-0-mig-2g-10gb-14-at-2")]);
    assert_eq!(layout(&bed), "2g.10gb@2");
    let specification = bed.at(&format!("cdi/nvidia.com-resource-claim_{A}.yaml"));
    let text = fs::read_to_string(&specification).unwrap();
    assert!(text.contains("nvidia-cap") && text.contains(&cdi[0][17..]), "{text}");
    // The kubelet asks again.
    assert_eq!(prepare(&bed, A, &["gpu-0-mig-2g-10gb-14-at-2"]), Ok(cdi));
    assert_eq!(layout(&bed), "2g.10gb@2");
    // Another claim has another place, and not this one.
    let refused = prepare(&bed, B, &["gpu-0-mig-2g-10gb-14-at-2"]).unwrap_err();
    assert!(refused.contains(A) || refused.contains("lab/train"), "{refused}");
    prepare(&bed, B, &["gpu-0-mig-1g-5gb-me-20-at-6"]).unwrap();
    assert_eq!(layout(&bed), "2g.10gb@2,1g.5gb+me@6");
    // What claims have is for the scheduler to count.
    assert_eq!(held(&bed), []);
    unprepare(&bed, A);
    until("the instance is destroyed", || layout(&bed) == "1g.5gb+me@6");
    assert!(!specification.exists());
    unprepare(&bed, B);
    until("the other one too", || layout(&bed) == "empty");
    assert_eq!(bed.layouts()[1..], others[..]);
}

/// The next claim comes while the instance of the one before is destroyed, and the driver gives its numbers again.
#[test]
fn a_claim_gets_the_place_whose_instance_is_being_destroyed() {
    let bed = bed();
    let device = ["gpu-0-mig-7g-40gb-0-at-0"];
    prepare(&bed, A, &device).unwrap();
    for round in 0..8_u64 {
        let (last, next) = if round % 2 == 0 { (A, B) } else { (B, A) };
        unprepare(&bed, last);
        std::thread::sleep(Duration::from_millis(round * 15));
        let cdi = prepare(&bed, next, &device).map(|cdi| cdi.len());
        assert_eq!((cdi, layout(&bed).as_str()), (Ok(1), "7g.40gb@0"), "{round}");
    }
}

#[test]
fn a_claim_of_several_instances_has_all_of_them_or_none() {
    let bed = bed();
    let two = ["gpu-0-mig-1g-5gb-19-at-6", "gpu-0-mig-3g-20gb-9-at-0"];
    assert_eq!(prepare(&bed, A, &two).unwrap().len(), 2);
    assert_eq!(layout(&bed), "3g.20gb@0,1g.5gb@6");
    unprepare(&bed, A);
    until("both are destroyed", || layout(&bed) == "empty");
    let refused = prepare(&bed, A, &["gpu-0-mig-1g-5gb-19-at-6", "gpu-0-mig-3g-20gb-9-at-4"]).unwrap_err();
    assert!(
        refused.starts_with("device gpu-0-mig-3g-20gb-9-at-4: has no room on gpu 0: 1g.5gb at 6"),
        "{refused}"
    );
    let since = Instant::now();
    until("the first one is destroyed", || layout(&bed) == "empty");
    // The second device does not exist: the first is not left either.
    let refused = prepare(&bed, A, &["gpu-0-mig-1g-5gb-19-at-6", "gpu-9"]).unwrap_err();
    assert!(refused.contains("is not on this node any more"), "{refused}");
    until("it is destroyed", || layout(&bed) == "empty");
    // An instance that nobody claims is left for 30 s.
    assert!(since.elapsed() < Duration::from_secs(20), "{:?}", since.elapsed());
    let unknown = prepare(&bed, A, &["gpu-0-mig-1g-5gb-19-at-7"]).unwrap_err();
    assert!(unknown.contains("is not on this node any more"), "{unknown}");
    assert_eq!(devices(&bed).claims, []);
}

#[test]
fn what_others_have_is_said_and_refused() {
    let bed = bed();
    // A holder outside Kubernetes has an instance.
    let said = bed.tranche(&["claim", "create", "--name", "podman", "--mig", "1g.5gb"]);
    assert_eq!((said.code, layout(&bed).as_str()), (Some(0), "1g.5gb@6"), "{said:?}");
    let taken = held(&bed);
    let names: Vec<&str> = taken.iter().map(|(name, _)| name.as_str()).collect();
    assert!(
        names.contains(&"gpu-0-mig-1g-5gb-19-at-6") && names.contains(&"gpu-0-mig-3g-20gb-9-at-4"),
        "{names:?}"
    );
    assert!(!names.contains(&"gpu-0-mig-2g-10gb-14-at-4") && !names.contains(&"gpu-0-mig-1g-5gb-19-at-4"));
    assert!(taken.iter().all(|(_, who)| who == "claim podman"), "{taken:?}");
    let refused = prepare(&bed, A, &["gpu-0-mig-3g-20gb-9-at-4"]).unwrap_err();
    assert_eq!(
        refused,
        "device gpu-0-mig-3g-20gb-9-at-4: has no room on gpu 0: 1g.5gb at 6 is in use by claim podman"
    );
    assert_eq!(layout(&bed), "1g.5gb@6");
    let refused = prepare(&bed, A, &["gpu-0-mig-1g-5gb-19-at-6"]).unwrap_err();
    assert!(refused.contains("claim podman"), "{refused}");
    assert_eq!(bed.tranche(&["claim", "release", "podman"]).code, Some(0));
    until("it is free", || held(&bed).is_empty());
    prepare(&bed, A, &["gpu-0-mig-3g-20gb-9-at-4"]).unwrap();
    // Also when the broker has not destroyed yet what is left: its place is needed now.
    assert_eq!(layout(&bed), "3g.20gb@4");
}

/// The device plugin: it asks the same broker, and again when a file of the state directory changes.
#[test]
fn what_the_device_plugin_is_offered_follows_the_layout() {
    let bed = Bed::new("dgx-a100-mig");
    let offered = |resource: &str| -> usize {
        let all = ask(&bed, "offers", json!({})).unwrap();
        let all = all["offers"].as_array().unwrap().clone();
        all.iter().filter(|offer| offer["resource"] == resource).count()
    };
    let host = bed.at("state/host.json");
    bed.apply("0:empty");
    let before = (offered("nvidia.com/mig-2g.10gb"), offered("nvidia.com/mig-1g.5gb"));
    let written = fs::metadata(&host).unwrap().modified().unwrap();
    bed.apply("0:3x2g.10gb,1g.5gb");
    let after = (offered("nvidia.com/mig-2g.10gb"), offered("nvidia.com/mig-1g.5gb"));
    assert_eq!(after, (before.0 + 3, before.1 + 1));
    assert_ne!(fs::metadata(&host).unwrap().modified().unwrap(), written);
    bed.apply("0:empty");
    assert_eq!(
        (offered("nvidia.com/mig-2g.10gb"), offered("nvidia.com/mig-1g.5gb")),
        before
    );
}

#[test]
fn an_instance_that_was_made_by_hand_is_given_at_its_place_and_stays() {
    let bed = bed();
    bed.apply("0:1g.5gb@3");
    let taken = held(&bed);
    assert!(
        taken.iter().all(|(name, _)| name != "gpu-0-mig-1g-5gb-19-at-3"),
        "{taken:?}"
    );
    let whole = taken.iter().find(|(name, _)| name == "gpu-0-mig-7g-40gb-0-at-0");
    assert_eq!(
        whole.map(|(_, who)| who.as_str()),
        Some("an instance that was made by hand")
    );
    prepare(&bed, A, &["gpu-0-mig-1g-5gb-19-at-3"]).unwrap();
    assert_eq!((layout(&bed).as_str(), held(&bed)), ("1g.5gb@3", vec![]));
    unprepare(&bed, A);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(layout(&bed), "1g.5gb@3");
}

#[test]
fn a_boot_ends_the_instances_and_the_kubelet_has_them_made_again() {
    let mut bed = bed();
    // The driver numbers instances in the order in which they are made.
    prepare(&bed, A, &["gpu-0-mig-1g-5gb-19-at-6"]).unwrap();
    prepare(&bed, B, &["gpu-0-mig-1g-5gb-19-at-4"]).unwrap();
    bed.end(Signal::SIGTERM);
    bed.boot();
    bed.start();
    assert_eq!(layout(&bed), "empty");
    let mut claims: Vec<String> = devices(&bed).claims.into_iter().map(|claim| claim.uid).collect();
    claims.sort();
    assert_eq!(claims, [A, B], "they are known after the boot");
    prepare(&bed, B, &["gpu-0-mig-1g-5gb-19-at-4"]).unwrap();
    assert_eq!(layout(&bed), "1g.5gb@4");
    prepare(&bed, A, &["gpu-0-mig-1g-5gb-19-at-6"]).unwrap();
    assert_eq!(layout(&bed), "1g.5gb@4,1g.5gb@6");
    unprepare(&bed, A);
    unprepare(&bed, B);
    until("both are destroyed", || layout(&bed) == "empty");
}

#[test]
fn a_broker_that_is_killed_leaves_what_the_next_call_completes() {
    let mut bed = bed();
    let device = ["gpu-0-mig-1g-5gb-19-at-5", "gpu-0-mig-2g-10gb-14-at-2"];
    for step in 0..12_u64 {
        std::thread::scope(|scope| {
            let call = scope.spawn(|| prepare(&bed, A, &device));
            std::thread::sleep(Duration::from_millis(step * 25));
            bed.kill_broker();
            let _ = call.join().unwrap();
        });
        bed.end(Signal::SIGKILL);
        bed.start();
        prepare(&bed, A, &device).unwrap();
        assert_eq!(layout(&bed), "2g.10gb@2,1g.5gb@5", "{step}");
        bed.end(Signal::SIGKILL);
        bed.start();
        assert_eq!(prepare(&bed, A, &device).unwrap().len(), 2);
        // A killed broker forgets no instance that it has made.
        unprepare(&bed, A);
        until("both are destroyed", || layout(&bed) == "empty");
    }
}

/// The broker has examined the host for the kubelet, and takes its turn when the instance that was allocated is
/// destroyed.
#[test]
fn the_kubelet_does_not_get_what_was_destroyed_since_the_broker_has_looked() {
    let claim = json!({"namespace": "lab", "name": "train", "uid": A});
    let shared = "sharing: {timeSlicing: {resources: [{name: nvidia.com/mig-2g.10gb, replicas: 2}]}}\n";
    for (door, instances, sharing) in [("dra", "dra-devices", ""), ("device-plugin", "offers", shared)] {
        let bed = Bed::new("dgx-a100-mig");
        bed.apply("0:2g.10gb");
        bed.policy(&format!("version: v1\nkubernetes: {{door: {door}}}\n{sharing}"));
        assert_eq!(bed.tranche(&["cdi", "refresh"]).code, Some(0));
        let offered = ask(&bed, instances, json!({})).unwrap().to_string();
        let (command, mut request) = match door {
            "dra" => {
                let device = named(&offered, "gpu-0-mig-");
                let devices = json!([{"device": device}]);
                (
                    "prepare-claim",
                    json!({"claim": claim, "devices": devices, "asked_at": u64::MAX}),
                )
            }
            _ => {
                let pod = json!({"namespace": "lab", "name": "train"});
                (
                    "reserve",
                    json!({"pod": pod, "devices": [format!("{}.0", named(&offered, "MIG-"))]}),
                )
            }
        };
        let path = bed.at("state/ledger/lock");
        let lock = Flock::lock(fs::File::open(&path).unwrap(), FlockArg::LockExclusive).map_err(|e| e.1);
        let lock = lock.unwrap();
        request["command"] = json!(command);
        let answer = std::thread::scope(|scope| {
            let asked = scope.spawn(|| bed.ask(&request));
            until("the broker waits for the ledger", || {
                let opened = fs::read_dir(format!("/proc/{}/fd", bed.pid()))
                    .into_iter()
                    .flatten()
                    .flatten();
                opened
                    .filter_map(|fd| fs::read_link(fd.path()).ok())
                    .any(|file| file == path)
            });
            bed.destroy_by_hand();
            assert_eq!(bed.tranche(&["cdi", "refresh"]).code, Some(0));
            drop(lock);
            asked.join().unwrap()
        });
        let refused = answer.expect_err(door);
        assert!(refused.contains("was destroyed meanwhile"), "{door}: {refused}");
        let claims: Value = serde_json::from_str(&bed.tranche(&["claim", "list", "--json"]).out).unwrap();
        assert_eq!(claims, json!([]), "{door}");
        assert!(!bed.at(&format!("cdi/nvidia.com-resource-claim_{A}.yaml")).exists());
    }
}

/// The first word in `text` that begins so.
fn named(text: &str, prefix: &str) -> String {
    let found = text.find(prefix).unwrap_or_else(|| panic!("{text}"));
    text[found..].chars().take_while(|c| *c != '"').collect()
}

/// When all pods of a node end, the kubelet's next call waits for this.
#[test]
fn the_instances_of_one_gpu_are_destroyed_with_one_refresh() {
    let bed = bed();
    let places: Vec<String> = (0..7).map(|start| format!("gpu-0-mig-1g-5gb-19-at-{start}")).collect();
    let places: Vec<&str> = places.iter().map(String::as_str).collect();
    prepare(&bed, A, &places).unwrap();
    // After each refresh, the file gets a new time.
    let refreshes = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&refreshes, bed.at("state"), inotify::WatchFlags::MODIFY).unwrap();
    unprepare(&bed, A);
    until("all are destroyed and forgotten", || {
        let made = fs::read_to_string(bed.at("state/mig-on-demand.json")).unwrap_or_default();
        !made.contains("MIG-") && bed.layout(0) == "empty"
    });
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(&refreshes, &mut buffer);
    let files = std::iter::from_fn(|| Some(events.next().ok()?.file_name().map(ToOwned::to_owned)));
    let of_host = files.flatten().filter(|name| name.as_bytes() == b"host.json");
    assert_eq!(of_host.count(), 1);
}
