//! Root, who comes after users that have waited for longer if the policy says so (`sharing.queue.rootWaits`).

use crate::scene::{ANN, BOB, Scene};
use crate::support::until;
use crate::waiting::{Waiting, order, scene, until_waiting};
use serde_json::json;
use std::fs;
use std::process::{Child, Stdio};

/// Both GPUs whole, each for one at a time.
fn policy(root_waits: bool, shares: u32) -> String {
    format!(
        "version: v1\nsharing:\n  dedicated: {{devices: [0, 1]}}\n  quota: {{shares: {shares}, all: 2}}\n  \
         queue: {{rootWaits: {root_waits}}}\n"
    )
}

/// How many tickets the queue of the ledger has.
fn tickets(scene: &Scene) -> usize {
    fs::read_dir(scene.at("state/ledger/queue")).map_or(0, Iterator::count)
}

/// Root's request for any device, which waits.
fn root(scene: &Scene, name: &str) -> Child {
    let mut command = scene.command_of_root(&["claim", "create", "--device=any", "--wait=1m"]);
    command
        .arg(format!("--name={name}"))
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Both devices are held: by [`BOB`] and by root.
fn full(test: &str, root_waits: bool) -> Option<Scene> {
    let scene = scene(&format!("root_waits::{test}"), &policy(root_waits, 2))?;
    scene.ask(BOB, "claim", json!({"name": "b", "device": "0"})).unwrap();
    let held = scene.tranche_of_root(&["claim", "create", "--name=root", "--device=1"]);
    assert!(held.status.success(), "{held:?}");
    Some(scene)
}

/// Ends what root holds.
fn release_of_root(scene: &Scene) {
    assert!(scene.of_root(&["claim", "release", "root"]).status.success());
}

#[test]
fn root_comes_after_a_user_who_waits_already_only_if_the_policy_says_so() {
    for root_waits in [true, false] {
        let test = "root_comes_after_a_user_who_waits_already_only_if_the_policy_says_so";
        let Some(scene) = full(test, root_waits) else { return };
        let of_ann = Waiting::claim(&scene, ANN, "a", "1m");
        until_waiting(&scene, 1);
        let user_tickets = usize::from(root_waits);
        until("the user has a ticket, or none", || tickets(&scene) == user_tickets);
        let mut later = root(&scene, "later");
        until("root waits as well", || tickets(&scene) == user_tickets + 1);
        until("root is shown the ticket of the user", || {
            let status = String::from_utf8(scene.of_root(&["status", "--no-gpu"]).stdout).unwrap();
            // The program of the start that waits, and not what is to be done about a missing host.json.
            let of_starts = status
                .lines()
                .filter(|line| line.contains("tranche") && !line.contains("host.json"));
            let of_starts = of_starts.count();
            order(&scene).len() == 1 && of_starts == 1
        });
        release_of_root(&scene);
        let (first, second) = (format!("{ANN}.a"), "later".to_owned());
        let [first, second] = if root_waits { [first, second] } else { [second, first] };
        until("the first is served", || scene.names().contains(&first));
        assert!(!scene.names().contains(&second), "{:?}", scene.names());
        scene.ask(BOB, "release", json!({"what": "b"})).unwrap();
        of_ann.answer().unwrap();
        assert!(later.wait().unwrap().success());
        assert_eq!(tickets(&scene), 0);
    }
}

#[test]
fn a_user_comes_after_root_who_waits_already() {
    let Some(scene) = full("a_user_comes_after_root_who_waits_already", true) else {
        return;
    };
    let mut earlier = root(&scene, "earlier");
    until("root waits", || tickets(&scene) == 1);
    let of_ann = Waiting::claim(&scene, ANN, "a", "1m");
    until("the user waits as well", || tickets(&scene) == 2);
    release_of_root(&scene);
    assert!(earlier.wait().unwrap().success());
    assert!(!scene.names().contains(&format!("{ANN}.a")), "{:?}", scene.names());
    scene.ask(BOB, "release", json!({"what": "b"})).unwrap();
    of_ann.answer().unwrap();
}

#[test]
fn a_user_who_may_not_hold_more_keeps_nothing_from_root() {
    let test = "root_waits::a_user_who_may_not_hold_more_keeps_nothing_from_root";
    let Some(scene) = scene(test, &policy(true, 1)) else {
        return;
    };
    scene.ask(ANN, "claim", json!({"name": "a", "device": "0"})).unwrap();
    let more = Waiting::claim(&scene, ANN, "more", "1m");
    until_waiting(&scene, 1);
    until("its ticket says that root need not wait for it", || {
        let text = |entry: std::io::Result<fs::DirEntry>| fs::read_to_string(entry.unwrap().path()).unwrap();
        fs::read_dir(scene.at("state/ledger/queue"))
            .unwrap()
            .map(text)
            .eq(["[]"])
    });
    let root = scene.tranche_of_root(&["claim", "create", "--name=root", "--device=1"]);
    assert!(root.status.success(), "{root:?}");
    drop(more);
}

#[test]
fn the_ticket_of_a_user_ends_with_the_wait_and_with_the_broker() {
    let Some(mut scene) = full("the_ticket_of_a_user_ends_with_the_wait_and_with_the_broker", true) else {
        return;
    };
    let of_ann = Waiting::claim(&scene, ANN, "a", "1m");
    until("the user has a ticket", || tickets(&scene) == 1);
    drop(of_ann);
    until("it ends with its client", || tickets(&scene) == 0);
    let _killed = Waiting::claim(&scene, ANN, "a", "1m");
    until("the user has a ticket again", || tickets(&scene) == 1);
    scene.stop(nix::sys::signal::Signal::SIGKILL);
    // What the kernel has unlocked is nobody's.
    release_of_root(&scene);
    let root = scene.tranche_of_root(&["claim", "create", "--name=now", "--device=1"]);
    assert!(root.status.success(), "{root:?}");
}
