//! Who waits, until the end of the wait.

use crate::page::get;
use crate::scene::{SHARES, Scene};
use crate::support::openmetrics;
use crate::support::until::until;
use std::fs;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;
use tranche_core::ledger::events::{EventKind, EventLine, parse};

/// How many wait, by the metrics.
fn waiting(scene: &Scene) -> f64 {
    let answer = get(UnixStream::connect(scene.at("page")).unwrap(), "GET", "/metrics", "x");
    let (_, text) = answer.split_once("\r\n\r\n").unwrap();
    openmetrics::read(text).unwrap()["tranche_waiters"]
}

/// The seconds of the waits that ended, as the lines of the events have them.
fn counted(scene: &Scene, kind: EventKind) -> Vec<u64> {
    let text = fs::read_to_string(scene.at("state/events/log")).unwrap();
    let ended = text.lines().filter_map(|line| match parse(line) {
        EventLine::Event(event) => (event.kind == kind).then_some(event.value),
        _ => None,
    });
    ended.collect()
}

#[test]
fn waits_are_counted_until_they_end_also_if_the_process_is_killed() {
    let mut scene = Scene::new();
    scene.start();
    (0..SHARES).for_each(|number| scene.claim(&format!("c{number}")));
    let wait = |name: &str| {
        let mut command = scene.claim_command(name);
        command.arg("--wait=60s").stderr(Stdio::null()).stdout(Stdio::null());
        command.spawn().unwrap()
    };
    let mut served = wait("next");
    until("it waits", || waiting(&scene) == 1.0);
    sleep(Duration::from_millis(2_100));
    scene.release("c0");
    assert!(served.wait().unwrap().success());
    until("it waits no more", || waiting(&scene) == 0.0);
    let [seconds] = counted(&scene, EventKind::Served)[..] else {
        panic!("{:?}", counted(&scene, EventKind::Served));
    };
    assert!(seconds >= 2, "{seconds}");
    let report = scene.json_as(0, &["report"]);
    assert_eq!(report["rows"][0]["waited_seconds"], seconds, "{report}");

    let mut killed = wait("killed");
    until("it waits", || waiting(&scene) == 1.0);
    killed.kill().unwrap();
    killed.wait().unwrap();
    // Whoever has the lock of the ledger next removes what it left.
    assert!(!scene.claim_command("another").output().unwrap().status.success());
    until("it waits no more", || waiting(&scene) == 0.0);
    assert_eq!(counted(&scene, EventKind::Left).len(), 1);
}
