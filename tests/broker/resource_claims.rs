//! What the driver for dynamic resource allocation of Kubernetes asks, and containers that use what was prepared: they
//! run the hooks of the specification that the broker has written.

use crate::scene::{ANN, GPU_0, GPU_1, Scene, Sleeper};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};
use tranche_plan::cdi::registry::Registry;
use tranche_protocol::DraDevices;

/// GPU 0 in ten turns; GPU 1 is in no entry.
const POLICY: &str = "\
version: v1
kubernetes: {door: dra}
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, devices: [0], replicas: 10}]}}
";

/// A UID of a resource claim.
const A: &str = "aaaaaaaa-0000-4000-8000-000000000001";
const B: &str = "bbbbbbbb-0000-4000-8000-000000000002";

fn scene(test: &str) -> Option<Scene> {
    let mut scene = Scene::without_broker(test)?;
    fs::write(scene.at("policy.yaml"), POLICY).unwrap();
    scene.start();
    Some(scene)
}

/// Far in the future: after everything that was given up.
const LATE: u64 = u64::MAX;

fn prepare_at(scene: &Scene, uid: &str, devices: Value, asked_at: u64) -> Result<Vec<String>, String> {
    let claim = json!({"namespace": "lab", "name": "train", "uid": uid});
    let prepared = scene.ask(
        0,
        "prepare-claim",
        json!({"claim": claim, "devices": devices, "asked_at": asked_at}),
    )?;
    Ok(serde_json::from_value(prepared["cdi"].clone()).unwrap())
}

fn prepare(scene: &Scene, uid: &str, devices: Value) -> Result<Vec<String>, String> {
    prepare_at(scene, uid, devices, LATE)
}

fn unprepare(scene: &Scene, uid: &str) {
    assert_eq!(scene.ask(0, "unprepare-claim", json!({"uid": uid})), Ok(json!({})));
}

fn whole() -> Value {
    json!([{"device": "gpu-1"}])
}

fn turns(share: &str, shares: u32) -> Value {
    json!([{"device": "gpu-0", "share_id": share, "shares": shares}])
}

fn devices(scene: &Scene) -> DraDevices {
    serde_json::from_value(scene.ask(0, "dra-devices", json!({})).unwrap()).unwrap()
}

/// Who else holds something of GPU `gpu`.
fn held(scene: &Scene, gpu: usize) -> Vec<String> {
    let held = &devices(scene).devices[gpu].held;
    held.iter().map(|held| held.by.clone()).collect()
}

/// Starts a container with the CDI device `name`: its hooks of one stage run as an engine runs them.
fn hooks(scene: &Scene, name: &str, stage: &str, id: &str, init: &Sleeper) -> Result<(), String> {
    let device = name.strip_prefix("nvidia.com/claim=").unwrap();
    let file = scene.at("cdi").join(
        scene
            .specs()
            .into_iter()
            .find(|file| device.starts_with(&file[26..62]))
            .unwrap(),
    );
    let read = Registry::read_file(&file);
    let spec = &read.files()[0].spec;
    let device = spec.devices.iter().find(|one| one.name == device).unwrap();
    let mut ran = 0;
    for hook in device.edits.hooks.iter().filter(|hook| hook.hook_name == stage) {
        let mut command = Command::new(scene.at("tranche-oci"));
        command
            .args(&hook.args[1..])
            .env_clear()
            .stdin(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let state = json!({"id": id, "bundle": scene.at(id), "pid": init.pid(), "annotations": {}});
        child
            .stdin
            .take()
            .unwrap()
            .write_all(state.to_string().as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        if !output.status.success() {
            return Err(String::from_utf8(output.stderr).unwrap());
        }
        ran += 1;
    }
    assert_eq!(ran, 1, "{stage} of {name}");
    Ok(())
}

fn enter(scene: &Scene, name: &str, id: &str, init: &Sleeper) -> Result<(), String> {
    hooks(scene, name, "createRuntime", id, init)
}

/// A container of root's engine, which asks for the whole of GPU 1.
fn podman(scene: &Scene, init: &Sleeper) -> Result<(), String> {
    let mut command = Command::new(scene.at("tranche-oci"));
    command.args(["hook", "claim", "--whole", "--label=gpu 1"]);
    command
        .arg(format!("--device={GPU_1}"))
        .arg(scene.option("state-dir", "state"));
    command.env_clear().stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut hook = command.spawn().unwrap();
    let state = json!({"id": "podman", "bundle": scene.at("podman"), "pid": init.pid(), "annotations": {}});
    hook.stdin
        .take()
        .unwrap()
        .write_all(state.to_string().as_bytes())
        .unwrap();
    let output = hook.wait_with_output().unwrap();
    output
        .status
        .success()
        .then_some(())
        .ok_or(String::from_utf8(output.stderr).unwrap())
}

#[test]
fn containers_of_a_claim_use_its_device_together_and_nobody_else_does() {
    let Some(scene) = scene("containers_of_a_claim_use_its_device_together_and_nobody_else_does") else {
        return;
    };
    let names = prepare(&scene, A, whole()).unwrap();
    assert_eq!(names, [format!("nvidia.com/claim={A}-gpu-1")]);
    let (one, two) = (Sleeper::new(0), Sleeper::new(0));
    enter(&scene, &names[0], "one", &one).unwrap();
    enter(&scene, &names[0], "two", &two).unwrap();
    // A runtime runs the hook twice if it has the name twice.
    enter(&scene, &names[0], "two", &two).unwrap();
    assert_eq!(scene.claims().len(), 3);
    let refused = podman(&scene, &Sleeper::new(0)).unwrap_err();
    assert!(refused.contains("resource claim lab/train"), "{refused}");
    let refused = prepare(&scene, B, whole()).unwrap_err();
    assert!(refused.contains("resource claim lab/train"), "{refused}");
    assert_eq!(devices(&scene).claims.len(), 1);
    assert!(held(&scene, 1).is_empty(), "the scheduler counts it");
    // Its containers hold nothing of their own.
    let drained = scene.tranche_of_root(&["drain", "1"]);
    let said = String::from_utf8(drained.stderr).unwrap();
    assert_eq!(said.matches("by resource claim lab/train").count(), 1, "{said}");
    assert!(scene.tranche_of_root(&["undrain", "1"]).status.success());
    hooks(&scene, &names[0], "poststop", "one", &one).unwrap();
    assert_eq!(scene.claims().len(), 3, "the container still runs");
    drop(one);
    hooks(&scene, &names[0], "poststop", "one", &two).unwrap();
    assert_eq!(scene.claims().len(), 2);
    drop(two);
    unprepare(&scene, A);
    assert!(scene.claims().is_empty() && scene.specs().is_empty());
    podman(&scene, &Sleeper::new(0)).unwrap();
}

#[test]
fn to_prepare_twice_is_to_prepare_once_and_a_lost_specification_comes_back() {
    let Some(scene) = scene("to_prepare_twice_is_to_prepare_once_and_a_lost_specification_comes_back") else {
        return;
    };
    let names = prepare(&scene, A, whole()).unwrap();
    let before = scene.claims();
    fs::remove_dir_all(scene.at("cdi")).unwrap();
    assert_eq!(prepare(&scene, A, whole()).unwrap(), names);
    assert_eq!((scene.claims(), scene.specs().len()), (before, 1));
    enter(&scene, &names[0], "one", &Sleeper::new(0)).unwrap();
}

#[test]
fn a_claim_is_refused_while_another_holder_has_its_device_and_nothing_of_it_stays() {
    let Some(scene) = scene("a_claim_is_refused_while_another_holder_has_its_device_and_nothing_of_it_stays") else {
        return;
    };
    let init = Sleeper::new(0);
    podman(&scene, &init).unwrap();
    assert_eq!(held(&scene, 1), ["container podman"]);
    let both = json!([{"device": "gpu-0", "share_id": "s", "shares": 1}, {"device": "gpu-1"}]);
    let refused = prepare(&scene, A, both.clone()).unwrap_err();
    assert!(
        refused.starts_with("resource claim lab/train on gpu 1: container podman holds"),
        "{refused}"
    );
    assert_eq!((scene.claims().len(), scene.specs().len()), (1, 0));
    // A driver that asks again is answered with the holder, and nothing of it stays either.
    let claim = json!({"namespace": "lab", "name": "train", "uid": A});
    let request = json!({"claim": claim, "devices": both, "asked_at": LATE, "waits": true});
    let answer = scene.ask(0, "prepare-claim", request).unwrap();
    assert_eq!(answer, json!({"cdi": [], "held": refused.trim_end_matches("; ")}));
    assert_eq!((scene.claims().len(), scene.specs().len()), (1, 0));
    drop(init);
    assert_eq!(prepare(&scene, A, both.clone()).unwrap().len(), 2);
    // The scheduler may give a drained device to who tolerates that.
    unprepare(&scene, A);
    assert!(
        scene
            .tranche_of_root(&["drain", "0", "--reason=a fan"])
            .status
            .success()
    );
    let refused = prepare(&scene, A, both).unwrap_err();
    assert!(
        refused.starts_with("resource claim lab/train on gpu 0: out of service since "),
        "{refused}"
    );
}

#[test]
fn admin_access_shows_a_device_that_another_holds_and_holds_nothing() {
    let Some(scene) = scene("admin_access_shows_a_device_that_another_holds_and_holds_nothing") else {
        return;
    };
    let init = Sleeper::new(0);
    podman(&scene, &init).unwrap();
    let before = scene.claims();
    let all = json!([{"device": "gpu-0", "admin": true}, {"device": "gpu-1", "admin": true}]);
    let names = prepare(&scene, A, all).unwrap();
    assert_eq!(
        names,
        [
            format!("nvidia.com/claim={A}-gpu-0"),
            format!("nvidia.com/claim={A}-gpu-1")
        ]
    );
    assert_eq!(scene.claims(), before, "a watcher reserves nothing");
    let read = Registry::read_file(&scene.at("cdi").join(&scene.specs()[0]));
    for device in &read.files()[0].spec.devices {
        let edits = &device.edits;
        assert!(!edits.device_nodes.is_empty(), "{} has its nodes", device.name);
        assert!(edits.hooks.is_empty(), "no hook claims {}", device.name);
    }
    // It is in nobody's way.
    drop(init);
    let names = prepare(&scene, B, whole()).unwrap();
    enter(&scene, &names[0], "one", &Sleeper::new(0)).unwrap();
    unprepare(&scene, A);
    assert_eq!(scene.specs().len(), 1, "the owner's is left");
    // What a claim watches and what it owns are one claim.
    let both = json!([{"device": "gpu-1", "admin": true}, {"device": "gpu-0", "share_id": "s", "shares": 1}]);
    let names = prepare(&scene, A, both).unwrap();
    assert!(
        names[0].ends_with("gpu-1") && names[1].ends_with("gpu-0-s"),
        "{names:?}"
    );
    let missing = prepare(&scene, A, json!([{"device": "gpu-9", "admin": true}])).unwrap_err();
    assert!(missing.contains("device gpu-9: is not on this node"), "{missing}");
    let unmade = json!([{"device": "gpu-0-mig-1g-10gb-19-at-4", "admin": true}]);
    let unmade = prepare(&scene, A, unmade).unwrap_err();
    assert!(unmade.contains("is made when a claim owns it"), "{unmade}");
}

/// The driver writes it into the status of the claim.
#[test]
fn the_answer_says_what_a_claim_has_of_each_device() {
    let Some(scene) = scene("the_answer_says_what_a_claim_has_of_each_device") else {
        return;
    };
    let claim = json!({"namespace": "lab", "name": "train", "uid": A});
    let devices = json!([{"device": "gpu-1", "admin": true}, {"device": "gpu-0", "share_id": "s", "shares": 2}]);
    let request = json!({"claim": claim, "devices": devices, "asked_at": LATE});
    let answer = scene.ask(0, "prepare-claim", request).unwrap();
    let share = json!({"uuid": GPU_0, "strategy": "time-slicing", "share": "s", "memory_mib": null, "compute": null});
    assert_eq!(answer["given"], json!([null, share]));
    unprepare(&scene, A);
    let request = json!({"claim": claim, "devices": whole(), "asked_at": LATE});
    let answer = scene.ask(0, "prepare-claim", request).unwrap();
    let all = json!({"uuid": GPU_1, "strategy": "dedicated", "share": null, "memory_mib": null, "compute": null});
    assert_eq!(answer["given"], json!([all]));
}

#[test]
fn shares_of_any_number_of_turns_fill_a_device_exactly() {
    let Some(scene) = scene("shares_of_any_number_of_turns_fill_a_device_exactly") else {
        return;
    };
    prepare(&scene, A, turns("share-a", 7)).unwrap();
    let refused = prepare(&scene, B, turns("share-b", 4)).unwrap_err();
    assert!(refused.contains("more than the whole device"), "{refused}");
    let names = prepare(&scene, B, turns("share-b", 3)).unwrap();
    assert_eq!(names, [format!("nvidia.com/claim={B}-gpu-0-share-b")]);
    enter(&scene, &names[0], "one", &Sleeper::new(0)).unwrap();
    // A replica of the policy is one turn, and there is no room for it.
    let claim = scene.claim(ANN, "late").unwrap_err();
    assert!(claim.contains("no device can give it now"), "{claim}");
    unprepare(&scene, A);
    scene.claim(ANN, "late").unwrap();
    assert_eq!(held(&scene, 0), [format!("claim {ANN}.late")]);
}

#[test]
fn a_claim_that_is_deleted_by_force_keeps_its_device_until_its_container_has_ended() {
    let Some(scene) = scene("a_claim_that_is_deleted_by_force_keeps_its_device_until_its_container_has_ended") else {
        return;
    };
    let names = prepare(&scene, A, whole()).unwrap();
    let init = Sleeper::new(0);
    enter(&scene, &names[0], "one", &init).unwrap();
    unprepare(&scene, A);
    assert!(devices(&scene).claims.is_empty());
    assert_eq!(held(&scene, 1), ["resource claim lab/train"]);
    let refused = prepare(&scene, B, whole()).unwrap_err();
    assert!(refused.contains("resource claim lab/train holds"), "{refused}");
    drop(init);
    prepare(&scene, B, whole()).unwrap();
    assert_eq!(scene.claims().len(), 1);
}

#[test]
fn a_call_that_comes_after_its_claim_was_given_up_does_nothing() {
    let Some(scene) = scene("a_call_that_comes_after_its_claim_was_given_up_does_nothing") else {
        return;
    };
    unprepare(&scene, "unknown");
    prepare(&scene, A, whole()).unwrap();
    unprepare(&scene, A);
    unprepare(&scene, A);
    let late = prepare_at(&scene, A, whole(), 0).unwrap_err();
    assert!(
        late.contains("was given up after the kubelet had asked for this"),
        "{late}"
    );
    assert!(scene.claims().is_empty() && scene.specs().is_empty());
    // The same claim may be allocated again.
    prepare(&scene, A, whole()).unwrap();
}

#[test]
fn after_a_reboot_the_device_is_still_that_of_the_claim() {
    let Some(mut scene) = scene("after_a_reboot_the_device_is_still_that_of_the_claim") else {
        return;
    };
    let names = prepare(&scene, A, whole()).unwrap();
    enter(&scene, &names[0], "one", &Sleeper::new(0)).unwrap();
    scene.stop(nix::sys::signal::Signal::SIGKILL);
    for entry in fs::read_dir(scene.at("state")).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true if path.ends_with("kept") => {}
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }
    fs::remove_dir_all(scene.at("cdi")).unwrap();
    scene.start();
    assert!(
        podman(&scene, &Sleeper::new(0))
            .unwrap_err()
            .contains("resource claim lab/train")
    );
    assert_eq!(devices(&scene).claims[0].uid, A);
    assert_eq!(prepare(&scene, A, whole()).unwrap(), names);
    enter(&scene, &names[0], "again", &Sleeper::new(0)).unwrap();
    unprepare(&scene, A);
}

#[test]
fn what_cannot_be_prepared_is_refused_in_one_line_and_leaves_nothing() {
    let Some(mut scene) = scene("what_cannot_be_prepared_is_refused_in_one_line_and_leaves_nothing") else {
        return;
    };
    let mps = json!({"mps": {"active_thread_percentage": 50, "pinned_memory_mib": null}});
    for (devices, why) in [
        (json!([]), "has no device of this node"),
        (
            json!([{"device": "gpu-9"}]),
            "device gpu-9: is not on this node any more",
        ),
        (json!([{"device": "gpu-0"}]), "device gpu-0: was allocated as a whole"),
        (
            json!([{"device": "gpu-1"}, {"device": "gpu-1"}]),
            "device gpu-1: is in the claim twice",
        ),
        (
            json!([{"device": "gpu-1", "sharing": mps}]),
            "the claim's configuration says MPS",
        ),
    ] {
        let refused = prepare(&scene, A, devices).unwrap_err();
        assert!(refused.contains(why) && !refused.contains('\n'), "{refused}");
    }
    for uid in ["", "../../etc/passwd", "A b"] {
        assert!(prepare(&scene, uid, whole()).is_err(), "{uid}");
        assert!(scene.ask(0, "unprepare-claim", json!({"uid": uid})).is_err(), "{uid}");
    }
    for (command, fields) in [
        ("dra-devices", json!({})),
        (
            "prepare-claim",
            json!({"claim": {"namespace": "a", "name": "b", "uid": A}, "devices": whole(), "asked_at": 1}),
        ),
        ("unprepare-claim", json!({"uid": A})),
    ] {
        let refused = scene.ask(ANN, command, fields).unwrap_err();
        assert!(refused.contains("only root may ask for this"), "{refused}");
    }
    // The programs of MPS are not on this host.
    let policy = POLICY.replace("timeSlicing", "mps");
    fs::write(scene.at("policy.yaml"), policy).unwrap();
    scene.stop(nix::sys::signal::Signal::SIGTERM);
    scene.start();
    let share = json!([{"device": "gpu-0", "share_id": "s", "memory": 1 << 30, "compute": 30}]);
    assert!(prepare(&scene, A, share).is_err());
    // With what else it has, no container of the request could start.
    let two = json!([{"device": "gpu-0", "request": "gpus", "share_id": "s"}, {"device": "gpu-1", "request": "gpus"}]);
    let refused = prepare(&scene, A, two).unwrap_err();
    assert!(
        refused.starts_with("request gpus: gives a container gpu-0 and gpu-1, and a container with an MPS share"),
        "{refused}"
    );
    assert!(
        scene.claims().is_empty() && scene.specs().is_empty(),
        "{:?}",
        scene.claims()
    );
}

#[test]
fn a_share_of_the_policy_is_a_device_where_amounts_are_not_known() {
    let Some(scene) = scene("a_share_of_the_policy_is_a_device_where_amounts_are_not_known") else {
        return;
    };
    let offered = devices(&scene);
    let parts = offered.devices[0].parts.as_ref().unwrap();
    assert_eq!((parts.equal, parts.shares.len(), parts.most_claims), (true, 10, 10));
    assert_eq!(offered.devices[0].gpu.uuid, GPU_0);
    let third = &parts.shares[3];
    prepare(&scene, A, json!([{"device": third.device}])).unwrap();
    let refused = prepare(&scene, B, json!([{"device": third.device}])).unwrap_err();
    assert!(refused.contains("resource claim lab/train holds share 3"), "{refused}");
}

/// What was refused is not held and leaves no specification; asked again with room, it is made and outlives a boot.
#[test]
fn a_claim_that_cannot_be_kept_is_refused_and_not_held() {
    let Some(mut scene) = scene("resource_claims::a_claim_that_cannot_be_kept_is_refused_and_not_held") else {
        return;
    };
    prepare(&scene, A, turns("one", 2)).unwrap();
    let places = scene.let_nothing_be_kept();
    for _ in 0..2 {
        let refused = prepare(&scene, B, turns("two", 3)).unwrap_err();
        assert!(refused.contains("cannot be replaced"), "{refused}");
        assert_eq!(scene.claims().len(), 1, "A's");
        assert_eq!(scene.specs().len(), 1);
    }
    for place in places {
        fs::remove_dir_all(place).unwrap();
    }
    prepare(&scene, B, turns("two", 3)).unwrap();
    scene.stop(nix::sys::signal::Signal::SIGTERM);
    fs::remove_dir_all(scene.at("state/ledger")).unwrap();
    scene.start();
    devices(&scene);
    assert_eq!(scene.claims().len(), 2, "both");
}
