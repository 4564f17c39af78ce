//! Users who wait for what others hold: who is served first, what ends a wait, and what users can never do to root.

use crate::scene::{ANN, BOB, GPU_0, Scene, Sleeper, answer, as_user, container};
use crate::support::until;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Both GPUs whole, each for one at a time.
const DEDICATED: &str = "\
version: v1
sharing:
  dedicated: {devices: [0, 1]}
  quota: {shares: 2, all: 2}
";

/// A scene with this policy.
pub(crate) fn scene(test: &str, policy: &str) -> Option<Scene> {
    let mut scene = Scene::without_broker(&format!("waiting::{test}"))?;
    fs::write(scene.at("policy.yaml"), policy).unwrap();
    scene.start();
    Some(scene)
}

/// A request of `uid` that waits: its connection.
pub(crate) struct Waiting {
    stream: UnixStream,
}

impl Waiting {
    pub(crate) fn new(scene: &Scene, uid: u32, command: &str, mut fields: Value) -> Self {
        fields["version"] = json!(1);
        fields["command"] = json!(command);
        let mut stream = scene.connect(uid);
        stream.write_all(format!("{fields}\n").as_bytes()).unwrap();
        Self { stream }
    }

    /// A request for any whole device.
    pub(crate) fn claim(scene: &Scene, uid: u32, name: &str, wait: &str) -> Self {
        Self::new(
            scene,
            uid,
            "claim",
            json!({"name": name, "device": "any", "wait": wait}),
        )
    }

    pub(crate) fn answer(mut self) -> Result<Value, String> {
        answer(&mut self.stream)
    }
}

/// The names of what waits, in the order in which it is served, as root is shown it.
pub(crate) fn order(scene: &Scene) -> Vec<String> {
    let Ok(text) = fs::read(scene.at("state/waiting.json")) else {
        return Vec::new();
    };
    let waits: Value = serde_json::from_slice(&text).unwrap();
    let what = |wait: &Value| wait["what"].as_str().unwrap().to_owned();
    waits["waiting"].as_array().unwrap().iter().map(what).collect()
}

pub(crate) fn until_waiting(scene: &Scene, number: usize) {
    until("they wait", || order(scene).len() == number);
}

#[test]
fn who_has_held_less_lately_is_served_first_and_sees_the_place() {
    let Some(scene) = scene("who_has_held_less_lately_is_served_first_and_sees_the_place", DEDICATED) else {
        return;
    };
    scene.ask(ANN, "claim", json!({"name": "a", "device": "0"})).unwrap();
    // Root's claims are no user's, and root does not wait behind users.
    let root = scene.tranche_of_root(&["claim", "create", "--name=root", "--device=1"]);
    assert!(root.status.success());
    std::thread::sleep(Duration::from_secs(2));
    let of_ann = Waiting::claim(&scene, ANN, "b", "1m");
    until_waiting(&scene, 1);
    let of_bob = Waiting::claim(&scene, BOB, "c", "1m");
    until("both wait", || {
        order(&scene) == [format!("claim {BOB}.c"), format!("claim {ANN}.b")]
    });
    let own = scene.ask(ANN, "list", json!({})).unwrap();
    assert_eq!(
        (&own["waiting"][0]["ahead"], own["waiting"].as_array().unwrap().len()),
        (&json!(1), 1)
    );
    let status = scene.tranche(BOB, &["status", "--no-gpu"]);
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    let text = String::from_utf8(status.stdout).unwrap();
    assert!(
        text.contains("USER WAITS FOR") && text.contains(&format!("claim {BOB}.c")),
        "{text}"
    );
    assert!(!text.contains(&format!("claim {ANN}.b")), "{text}");
    let status = scene.of_root(&["status", "--no-gpu"]);
    let text = String::from_utf8(status.stdout).unwrap();
    assert!(text.contains(&format!("claim {ANN}.b")), "{text}");
    for file in ["waiting.json", "used-lately.json"] {
        let file = scene.at("state").join(file);
        // What was held is written every ten seconds.
        until("it is written", || file.exists());
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
    // Who comes without waiting passes nobody.
    assert!(scene.of_root(&["claim", "release", "root"]).status.success());
    let cdi = of_bob.answer().unwrap();
    assert_eq!(cdi["cdi"], format!("nvidia.com/claim={BOB}.c"));
    scene.ask(ANN, "release", json!({"what": "a"})).unwrap();
    assert_eq!(of_ann.answer().unwrap()["cdi"], format!("nvidia.com/claim={ANN}.b"));
    until("nobody waits", || !scene.at("state/waiting.json").exists());
}

#[test]
fn a_wait_ends_with_its_client_with_its_time_and_with_the_broker() {
    let test = "a_wait_ends_with_its_client_with_its_time_and_with_the_broker";
    let Some(mut scene) = scene(test, DEDICATED) else {
        return;
    };
    scene.ask(ANN, "claim", json!({"name": "a", "device": "0"})).unwrap();
    scene.ask(BOB, "claim", json!({"name": "b", "device": "1"})).unwrap();
    let began = Instant::now();
    let line = Waiting::claim(&scene, ANN, "short", "1s").answer().unwrap_err();
    assert!(
        line.contains("waited 1 s for it") && line.contains("gpu 0 is held"),
        "{line}"
    );
    assert!(
        line.contains("by another user") && !line.contains(&BOB.to_string()),
        "{line}"
    );
    assert!(began.elapsed() >= Duration::from_secs(1));
    let gone = Waiting::claim(&scene, ANN, "gone", "1m");
    let stays = Waiting::claim(&scene, ANN, "stays", "1m");
    until_waiting(&scene, 2);
    gone.stream.shutdown(Shutdown::Both).unwrap();
    drop(gone);
    until_waiting(&scene, 1);
    scene.ask(BOB, "release", json!({"what": "b"})).unwrap();
    assert_eq!(stays.answer().unwrap()["claim"]["name"], format!("{ANN}.stays"));
    assert_eq!(scene.names(), [format!("{ANN}.a"), format!("{ANN}.stays")]);
    // The request before is shown for up to a second after its end.
    until_waiting(&scene, 0);
    let ends = Waiting::claim(&scene, BOB, "ends", "1h");
    until_waiting(&scene, 1);
    let began = Instant::now();
    assert_eq!(scene.stop(Signal::SIGTERM), Some(0));
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "the broker waited for a waiting request"
    );
    let line = ends.answer().unwrap_err();
    assert!(line.contains("given up, because the broker ends; try again"), "{line}");
    assert!(!scene.at("state/waiting.json").exists());
}

#[test]
fn a_user_waits_with_few_requests_and_can_still_release() {
    let Some(scene) = scene("a_user_waits_with_few_requests_and_can_still_release", DEDICATED) else {
        return;
    };
    scene.ask(BOB, "claim", json!({"name": "b", "device": "1"})).unwrap();
    scene.ask(ANN, "claim", json!({"name": "a", "device": "0"})).unwrap();
    let waiting: Vec<Waiting> = (0..4)
        // Longer than all that follows takes on any machine.
        .map(|number| Waiting::claim(&scene, ANN, &format!("w{number}"), "1h"))
        .collect();
    until_waiting(&scene, 4);
    // The connections of a user are limited, and so are the requests that wait.
    for number in 0..10_000 {
        let line = Waiting::claim(&scene, ANN, &format!("more{number}"), "1m")
            .answer()
            .unwrap_err();
        assert!(line.contains("4 requests of this user wait already"), "{line}");
    }
    // What cannot be served at all is not waited for.
    let line = Waiting::new(
        &scene,
        BOB,
        "claim",
        json!({"name": "x", "device": "any", "select": "product=H100", "wait": "1m"}),
    )
    .answer()
    .unwrap_err();
    assert!(line.contains("matches no device of the policy"), "{line}");
    // One of the waiting ones is served by what the user releases, although the user may hold two.
    scene.ask(ANN, "release", json!({"what": "a"})).unwrap();
    until("one was served", || {
        scene.names().iter().any(|name| name.starts_with(&format!("{ANN}.w")))
    });
    until_waiting(&scene, 3);
    drop(waiting);
    until("nobody waits", || order(&scene).is_empty());
}

#[test]
fn who_may_not_hold_more_waits_without_keeping_others_from_it() {
    let policy = DEDICATED.replace("shares: 2", "shares: 1");
    let test = "who_may_not_hold_more_waits_without_keeping_others_from_it";
    let Some(scene) = scene(test, &policy) else {
        return;
    };
    scene.ask(ANN, "claim", json!({"name": "a", "device": "0"})).unwrap();
    let more = Waiting::claim(&scene, ANN, "more", "1m");
    until_waiting(&scene, 1);
    // A device is free, and the user who waits may not have it.
    let bob = Waiting::claim(&scene, BOB, "b", "30s").answer().unwrap();
    assert_eq!(bob["note"], "gpu 1: the whole device");
    scene.ask(ANN, "release", json!({"what": "a"})).unwrap();
    assert_eq!(more.answer().unwrap()["note"], "gpu 0: the whole device");
}

#[test]
fn turns_and_waits_come_from_the_policy_by_user_and_group() {
    // The user nobody, in the group of the same number, as every system has them.
    let name = nix::unistd::User::from_uid(ANN.into()).unwrap().unwrap().name;
    let policy = format!(
        "{DEDICATED}  users:\n    default: {{maxWait: 1s}}\n    users:\n      {name}: {{served: last, waits: 1, maxWait: 1m}}\n"
    );
    let Some(scene) = scene("turns_and_waits_come_from_the_policy_by_user_and_group", &policy) else {
        return;
    };
    assert!(
        scene
            .tranche_of_root(&["claim", "create", "--name=r0", "--device=0"])
            .status
            .success()
    );
    assert!(
        scene
            .tranche_of_root(&["claim", "create", "--name=r1", "--device=1"])
            .status
            .success()
    );
    // The time of the policy counts, and not that of the request.
    let line = Waiting::claim(&scene, BOB, "b", "1h").answer().unwrap_err();
    assert!(line.contains("waited 1 s for it"), "{line}");
    let ann = Waiting::claim(&scene, ANN, "a", "1m");
    // Not the request before, which is shown for up to a second after its end.
    until("it waits", || order(&scene) == [format!("claim {ANN}.a")]);
    let line = Waiting::claim(&scene, ANN, "more", "1m").answer().unwrap_err();
    assert!(line.contains("1 request of this user wait"), "{line}");
    assert!(scene.of_root(&["claim", "release", "r1"]).status.success());
    assert_eq!(ann.answer().unwrap()["note"], "gpu 1: the whole device");
}

#[test]
fn a_container_of_a_users_engine_waits_in_the_same_queue() {
    let policy = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/gpu, devices: [0], replicas: 2}\n  quota: {shares: 4, all: 2}\n";
    let Some(scene) = scene("a_container_of_a_users_engine_waits_in_the_same_queue", policy) else {
        return;
    };
    let entering = |init: &Sleeper, id: &str, wait: &str| json!({"device": GPU_0, "share": "any", "container": container(id), "pid": init.pid(), "wait": wait});
    let inits: Vec<Sleeper> = (0..2).map(|_| Sleeper::new(ANN)).collect();
    for (number, init) in inits.iter().enumerate() {
        scene
            .ask(ANN, "enter", entering(init, &format!("c{number}"), "0s"))
            .unwrap();
    }
    let init = Sleeper::new(BOB);
    let waits = Waiting::new(&scene, BOB, "enter", entering(&init, "d", "1m"));
    until("it waits", || order(&scene) == ["gpu 0 any share"]);
    drop(inits);
    waits.answer().unwrap();
    assert_eq!(scene.claims().iter().filter(|claim| claim.uid == BOB).count(), 1);
    // The request before is shown for up to a second after its end.
    until("nobody waits", || order(&scene).is_empty());
    // One whose container ends while it waits gets nothing.
    let other = Sleeper::new(ANN);
    scene.ask(ANN, "enter", entering(&other, "e", "0s")).unwrap();
    let ends = Sleeper::new(BOB);
    let waits = Waiting::new(&scene, BOB, "enter", entering(&ends, "f", "1m"));
    until("it waits", || order(&scene).len() == 1);
    drop(ends);
    let line = waits.answer().unwrap_err();
    assert!(line.contains("has ended while its share was waited for"), "{line}");
}

/// A process of a user that makes claims, holds each for a moment, and releases it.
fn worker(scene: &Scene, uid: u32, number: u32) -> Child {
    let script = format!(
        "for i in 1 2 3; do {tranche} claim create --name=n{number}-$i --device=any --wait=2m --ttl=5 {state} >/dev/null || exit 1; sleep 0.0{moment}; \
         {tranche} claim release n{number}-$i {state} 2>/dev/null || exit 2; echo served; done",
        tranche = scene.at("tranche").display(),
        state = scene.option("state-dir", "state"),
        moment = number % 5,
    );
    let mut command = Command::new("setpriv");
    command.args([
        format!("--reuid={uid}"),
        format!("--regid={uid}"),
        "--clear-groups".into(),
    ]);
    command.args(["sh", "-c", &script]);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Forty processes of eight users, some of which are killed while they wait or hold, and a broker that is killed once.
#[test]
fn forty_processes_of_eight_users_share_two_devices() {
    let policy = DEDICATED.replace("  quota", "  users: {default: {waits: 6}}\n  quota");
    let Some(mut scene) = scene("forty_processes_of_eight_users_share_two_devices", &policy) else {
        return;
    };
    let user = |number: u32| 60_001 + number % 8;
    let mut workers: BTreeMap<u32, Child> = (0..40)
        .map(|number| (number, worker(&scene, user(number), number)))
        .collect();
    until("some wait", || order(&scene).len() > 20);
    // Every fifth is killed.
    for number in (0..40).step_by(5) {
        let mut killed = workers.remove(&number).unwrap();
        killed.kill().unwrap();
        killed.wait().unwrap();
    }
    for (number, worker) in workers {
        let done = worker.wait_with_output().unwrap();
        let said = String::from_utf8(done.stdout).unwrap();
        assert!(done.status.success(), "worker {number}: {} {said}", done.status);
        assert_eq!(said.lines().count(), 3, "worker {number}");
    }
    until("nobody waits", || order(&scene).is_empty());
    // What is held is at most what a killed one held: setpriv's shell was killed, and its tranche may have been served.
    let left = scene.claims();
    assert!(left.len() <= 2, "{left:?}");
    let mut devices: Vec<String> = left.iter().map(|claim| claim.device.to_string()).collect();
    devices.dedup();
    assert_eq!(devices.len(), left.len(), "a device is held twice: {left:?}");
    // A broker that is killed loses those who wait, and nothing that is held.
    for (uid, name) in [(ANN, "x"), (BOB, "y")] {
        let _ = scene.ask(uid, "claim", json!({"name": name, "device": "any"}));
    }
    let held = scene.names();
    let waits = Waiting::claim(&scene, ANN, "late", "1m");
    until_waiting(&scene, 1);
    scene.stop(Signal::SIGKILL);
    assert!(waits.answer().is_err());
    scene.start();
    assert_eq!(scene.names(), held);
    let uid = as_user(ANN, || rustix::process::getuid().as_raw());
    assert_eq!(uid, ANN);
}
