//! How much each user may hold by the policy, and for how long.

use crate::scene::{ANN, BOB, GPU_0, GPU_1, Scene, Sleeper, container};
use crate::support::until;
use nix::sys::signal::Signal;
use serde_json::json;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// GPU 0 in ten turns, GPU 1 whole, and these rules for users.
pub(crate) fn scene(test: &str, users: &str) -> Option<Scene> {
    let mut scene = Scene::without_broker(&format!("limits::{test}"))?;
    let policy = format!(
        "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {{name: nvidia.com/gpu, devices: [0], replicas: 10}}\n  \
         dedicated: {{devices: [1]}}\n  quota: {{shares: 3, all: 20}}\n  users:\n{users}"
    );
    fs::write(scene.at("policy.yaml"), policy).unwrap();
    scene.start();
    Some(scene)
}

/// The name of the user [`ANN`], whom every system has.
fn ann() -> String {
    nix::unistd::User::from_uid(ANN.into()).unwrap().unwrap().name
}

#[test]
fn a_user_holds_what_the_entry_for_the_user_or_the_group_says_and_the_refusal_names_it() {
    let group = nix::unistd::Group::from_gid(ANN.into()).unwrap().unwrap().name;
    let rules = format!(
        "    groups:\n      {group}: {{maxShares: 5}}\n    default: {{maxDevices: 0}}\n    users:\n      {}: {{maxDevices: 1}}\n",
        ann()
    );
    let test = "a_user_holds_what_the_entry_for_the_user_or_the_group_says_and_the_refusal_names_it";
    let Some(scene) = scene(test, &rules) else { return };
    let claim = |uid, name: &str, device: &str, shares: u32| {
        let fields = match shares {
            0 => json!({"name": name, "device": device}),
            shares => json!({"name": name, "device": device, "shares": shares}),
        };
        scene.ask(uid, "claim", fields)
    };
    // More than sharing.quota lets others hold.
    claim(ANN, "a", "0", 4).unwrap();
    assert_eq!(
        claim(ANN, "b", "0", 2).unwrap_err(),
        format!(
            "user {ANN}: may hold 5 shares, holds 4 and asks for 2 more; release some; \
             tranche claim list shows them; root sets sharing.users.groups.{group} in the policy"
        )
    );
    let refused = claim(BOB, "c", "1", 0).unwrap_err();
    let expected = "may hold 0 whole devices, holds 0 and asks for 1 more";
    assert!(
        refused.contains(expected) && refused.contains("sharing.users.default"),
        "{refused}"
    );
    let refused = claim(BOB, "c", "0", 4).unwrap_err();
    assert!(
        refused.contains("may hold 3 shares, holds 0") && refused.contains("root sets sharing.quota in"),
        "{refused}"
    );
    claim(BOB, "c", "0", 3).unwrap();
    // A whole device counts as one share.
    claim(ANN, "d", "1", 0).unwrap();
    assert!(claim(ANN, "e", "0", 1).unwrap_err().contains("holds 5 and asks for 1"));
    // The device is held. A user who may never have it is refused at once with the limit, and does not wait for it.
    for wait in ["0s", "10m"] {
        let refused = scene.ask(BOB, "claim", json!({"name": "f", "device": "1", "wait": wait}));
        assert!(
            refused.as_ref().is_err_and(|refused| refused.contains(expected)),
            "{refused:?}"
        );
        let init = Sleeper::new(BOB);
        let start =
            json!({"container": container("whole"), "pid": init.pid(), "device": GPU_1, "whole": true, "wait": wait});
        let entered = scene.ask(BOB, "enter", start);
        assert!(
            entered.as_ref().is_err_and(|refused| refused.contains(expected)),
            "{entered:?}"
        );
    }
    // Nor is it said otherwise while another user waits for it.
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| scene.ask(ANN, "claim", json!({"name": "g", "device": "1", "wait": "10m"})));
        let waits = || {
            let list = scene.ask(ANN, "list", json!({})).unwrap();
            list["waiting"].as_array().is_some_and(|waiting| !waiting.is_empty())
        };
        until("a user waits for the device", waits);
        let refused = claim(BOB, "f", "1", 0).unwrap_err();
        assert!(scene.tranche(ANN, &["claim", "release", "d"]).status.success());
        waiter.join().unwrap().unwrap();
        assert!(refused.contains(expected), "{refused}");
    });
    // Root is never limited.
    let root = scene.tranche_of_root(&["claim", "create", "--name=r", "--device=0", "--shares=3"]);
    assert!(root.status.success(), "{root:?}");
}

/// The rules by which users hold something for a short time.
fn for_a_second(rules: &str) -> String {
    format!(
        "    default: {{maxHold: 1s, {rules}}}\n    users:\n      {}: {{maxHold: 1s}}\n",
        ann()
    )
}

/// Writes the specifications and what the broker knows of the host.
pub(crate) fn refresh(scene: &Scene) {
    let mut refresh = Command::new(scene.at("tranche"));
    refresh.args(["cdi", "refresh", "--inventory=sim:t4x2"]).env_clear();
    for (option, path) in [
        ("state-dir", "state"),
        ("output-dir", "cdi"),
        ("config", "policy.yaml"),
        ("hook-path", "tranche-oci"),
    ] {
        refresh.arg(scene.option(option, path));
    }
    assert!(refresh.output().unwrap().status.success());
}

#[test]
fn what_is_held_for_too_long_is_told_once_or_released_with_its_specification() {
    let test = "what_is_held_for_too_long_is_told_once_or_released_with_its_specification";
    let Some(mut scene) = scene(test, &for_a_second("atLimit: release")) else {
        return;
    };
    scene.stop(Signal::SIGTERM);
    let journal = scene.at("journal");
    let broker = scene.command().stderr(fs::File::create(&journal).unwrap()).spawn();
    scene.watch(broker.unwrap());
    refresh(&scene);
    let root = scene.tranche_of_root(&["claim", "create", "--name=r", "--device=0"]);
    assert!(root.status.success(), "{root:?}");
    scene.claim(ANN, "a").unwrap();
    scene.claim(BOB, "b").unwrap();
    let kept = [format!("{ANN}.a"), "r".to_owned()];
    until("it is released", || scene.names() == kept);
    let is_of_bob = |name: &String| name.contains(&format!("{BOB}.b"));
    until("its specification is removed", || !scene.specs().iter().any(is_of_bob));
    let own = scene.ask(ANN, "list", json!({})).unwrap();
    assert_eq!(
        own["claims"][0]["too_long"]["limit"],
        format!("sharing.users.users.{}", ann())
    );
    let text = |output: Output| {
        assert!(output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let list = text(scene.tranche(ANN, &["claim", "list"]));
    assert!(list.contains("over by "), "{list}");
    let mut status = Command::new(scene.at("tranche"));
    status
        .args(["status", "--no-gpu"])
        .arg(scene.option("state-dir", "state"));
    let of_root = text(status.env_clear().output().unwrap());
    for status in [text(scene.tranche(ANN, &["status", "--no-gpu"])), of_root] {
        let lines: Vec<&str> = status
            .lines()
            .filter(|line| line.contains("longer than maxHold in sharing.users"))
            .collect();
        assert!(
            lines.len() == 1 && lines[0].contains(&format!("claim={ANN}.a")),
            "{status}"
        );
    }
    // Two more looks.
    std::thread::sleep(Duration::from_secs(11));
    assert_eq!(scene.names(), kept);
    let journal = fs::read_to_string(journal).unwrap();
    let lines = |what: &str| journal.lines().filter(|line| line.contains(what)).count();
    assert_eq!(
        lines(&format!("claim {ANN}.a: held for longer than 1s")),
        1,
        "{journal}"
    );
    assert_eq!(lines(&format!("claim {BOB}.b: released")), 1, "{journal}");
    assert_eq!(lines("claim r"), 0, "{journal}");
}

/// A process of `uid` that runs a script.
fn process(uid: u32, script: &str) -> Child {
    let mut command = Command::new("setpriv");
    command.args([
        format!("--reuid={uid}"),
        format!("--regid={uid}"),
        "--clear-groups".into(),
    ]);
    let child = command.args(["sh", "-c", script]).stdin(Stdio::null()).spawn().unwrap();
    // setpriv changes its user before it becomes the shell.
    let comm = format!("/proc/{}/comm", child.id());
    until("setpriv has become sh", || {
        fs::read_to_string(&comm).unwrap().trim_end() == "sh"
    });
    child
}

#[test]
fn a_container_that_is_held_for_too_long_is_ended_and_killed_if_it_ignores_that() {
    let test = "a_container_that_is_held_for_too_long_is_ended_and_killed_if_it_ignores_that";
    let Some(scene) = scene(test, &for_a_second("atLimit: end, grace: 2s")) else {
        return;
    };
    let enter = |uid, id: &str, child: &Child| {
        let fields = json!({"device": GPU_0, "share": "any", "container": container(id), "pid": child.id()});
        scene.ask(uid, "enter", fields).unwrap();
    };
    let mut obeys = process(BOB, "while :; do sleep 0.1; done");
    let mut ignores = process(BOB, "trap '' TERM; while :; do sleep 0.1; done");
    let mut only_told = process(ANN, "while :; do sleep 0.1; done");
    enter(BOB, "obeys", &obeys);
    enter(BOB, "ignores", &ignores);
    enter(ANN, "told", &only_told);
    assert_eq!(obeys.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
    let asked = Instant::now();
    assert_eq!(ignores.wait().unwrap().signal(), Some(Signal::SIGKILL as i32));
    assert!(asked.elapsed() >= Duration::from_millis(1500), "{:?}", asked.elapsed());
    until("nothing is held", || scene.seen(BOB).is_empty());
    assert!(only_told.try_wait().unwrap().is_none());
    assert_eq!(scene.seen(ANN).len(), 1);
    only_told.kill().unwrap();
    only_told.wait().unwrap();
}

#[test]
fn a_broker_stays_while_the_policy_limits_times() {
    let test = "a_broker_stays_while_the_policy_limits_times";
    for (rules, stays) in [
        ("    default: {maxHold: 1h}\n", true),
        ("    default: {maxShares: 1}\n", false),
    ] {
        let Some(mut scene) = scene(test, rules) else { return };
        scene.stop(Signal::SIGTERM);
        let broker = scene.command().arg("--idle=1s").spawn();
        scene.watch(broker.unwrap());
        std::thread::sleep(Duration::from_secs(4));
        assert_eq!(scene.runs(), stays, "{rules}");
    }
}
