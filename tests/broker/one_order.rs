//! The one order of root and users who wait: nobody is held up for longer than something is kept, and nobody waits for
//! somebody behind.

use crate::scene::{ANN, BOB, GPU_0, Scene, Sleeper, container};
use crate::support::until;
use crate::waiting::{Waiting, scene, until_waiting};
use serde_json::json;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A third user.
const EVE: u32 = 65532;

/// GPU 0 in four turns.
fn policy(reserve_for: &str, root_waits: bool) -> String {
    format!(
        "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {{name: nvidia.com/gpu, devices: [0], replicas: 4}}\n  \
         quota: {{shares: 4, all: 4}}\n  queue: {{reserveFor: {reserve_for}, rootWaits: {root_waits}}}\n"
    )
}

fn shares(scene: &Scene, uid: u32, name: &str, number: u32) -> Waiting {
    let wanted = json!({"name": name, "device": "0", "shares": number, "wait": "5m"});
    Waiting::new(scene, uid, "claim", wanted)
}

/// Root's claim of so many shares.
fn root(scene: &Scene, name: &str, number: u32, wait: &str) -> Child {
    let mut command = scene.command_of_root(&["claim", "create", "--device=0"]);
    command
        .args([
            format!("--name={name}"),
            format!("--shares={number}"),
            format!("--wait={wait}"),
        ])
        .stdout(Stdio::null());
    command.spawn().unwrap()
}

fn is_held(scene: &Scene, name: &str) -> bool {
    scene.names().iter().any(|held| held.ends_with(name))
}

#[test]
fn who_asks_anew_again_and_again_holds_nobody_up() {
    let test = "who_asks_anew_again_and_again_holds_nobody_up";
    let Some(scene) = scene(test, &policy("3s", false)) else {
        return;
    };
    assert!(root(&scene, "of-root", 2, "0s").wait().unwrap().success());
    scene.ask(BOB, "claim", json!({"name": "b", "device": "0"})).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let mut of_eve = shares(&scene, EVE, "three", 3);
    until_waiting(&scene, 1);
    let of_bob = shares(&scene, BOB, "one", 1);
    until_waiting(&scene, 2);
    // She hangs up before what is kept for her was kept in vain.
    until("the other one is served", || {
        std::thread::sleep(Duration::from_secs(2));
        of_eve = shares(&scene, EVE, "three", 3);
        is_held(&scene, "one")
    });
    of_bob.answer().unwrap();
    drop(of_eve);
}

#[test]
fn a_user_holds_root_up_for_as_long_as_something_is_kept() {
    let test = "a_user_holds_root_up_for_as_long_as_something_is_kept";
    let Some(scene) = scene(test, &policy("4s", true)) else {
        return;
    };
    assert!(root(&scene, "of-root", 2, "0s").wait().unwrap().success());
    let began = Instant::now();
    let of_eve = shares(&scene, EVE, "three", 3);
    until_waiting(&scene, 1);
    let refused = root(&scene, "at-once", 1, "0s").wait().unwrap();
    assert!(
        !refused.success() || began.elapsed() >= Duration::from_secs(4),
        "it is kept"
    );
    assert!(root(&scene, "later", 1, "5m").wait().unwrap().success());
    assert!(began.elapsed() >= Duration::from_secs(4), "{:?}", began.elapsed());
    // It is not kept any more: root does not wait.
    assert!(root(&scene, "at-once", 1, "0s").wait().unwrap().success());
    drop(of_eve);
}

#[test]
fn users_before_and_after_root_do_not_wait_for_one_another() {
    let test = "users_before_and_after_root_do_not_wait_for_one_another";
    let Some(scene) = scene(test, &policy("1m", true)) else {
        return;
    };
    // The first one has held much, so that the last one comes before it among users.
    scene.ask(BOB, "claim", json!({"name": "b", "device": "0"})).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert!(root(&scene, "of-root", 3, "0s").wait().unwrap().success());
    let of_bob = shares(&scene, BOB, "first", 1);
    until_waiting(&scene, 1);
    let mut of_root = root(&scene, "second", 1, "5m");
    until("root waits", || tickets(&scene) == 2);
    let of_eve = shares(&scene, EVE, "third", 1);
    until_waiting(&scene, 2);
    scene.ask(BOB, "release", json!({"what": "b"})).unwrap();
    of_bob.answer().unwrap();
    assert!(
        !is_held(&scene, "second") && !is_held(&scene, "third"),
        "{:?}",
        scene.names()
    );
    scene.ask(BOB, "release", json!({"what": "first"})).unwrap();
    assert!(of_root.wait().unwrap().success());
    assert!(!is_held(&scene, "third"), "{:?}", scene.names());
    assert!(scene.of_root(&["claim", "release", "second"]).status.success());
    of_eve.answer().unwrap();
}

/// A container that ends by itself writes nothing.
#[test]
fn who_waits_is_woken_by_the_end_of_a_container() {
    let test = "who_waits_is_woken_by_the_end_of_a_container";
    let Some(scene) = scene(test, &policy("1m", false)) else {
        return;
    };
    let enter = |number: usize| {
        let init = Sleeper::new(ANN);
        let entered =
            json!({"device": GPU_0, "share": "any", "container": container(&number.to_string()), "pid": init.pid()});
        scene.ask(ANN, "enter", entered).unwrap();
        init
    };
    let mut containers: Vec<Sleeper> = (0..4).map(enter).collect();
    let of_bob = shares(&scene, BOB, "of-bob", 1);
    until_waiting(&scene, 1);
    let mut of_root = root(&scene, "of-root", 1, "5m");
    until("root waits", || tickets(&scene) == 1);
    drop(containers.pop());
    assert!(of_root.wait().unwrap().success());
    assert!(!is_held(&scene, "of-bob"));
    drop(containers.pop());
    of_bob.answer().unwrap();
}

fn tickets(scene: &Scene) -> usize {
    std::fs::read_dir(scene.at("state/ledger/queue")).map_or(0, Iterator::count)
}
