//! Starts of containers that wait for their first turn.

use super::runs::KEPT;
use super::*;
use std::io::Write;
use std::process::{Child, Command, Output, Stdio};

/// Runs the claim hook of a container that has any share, which waits so long.
fn hook(turns: &Turns, container: &Container, wait: &str) -> Child {
    hook_of(turns, container, "any", wait, json!({}))
}

/// The same, of a container with annotations.
pub(super) fn hook_of(turns: &Turns, container: &Container, share: &str, wait: &str, annotations: Value) -> Child {
    let scene = &turns.bed.scene;
    let mut command = Command::new(scene.at("tranche-oci"));
    command.args([
        "hook",
        "claim",
        "--label=gpu 0",
        "--size=turns:3",
        "--of=3",
        "--prepare",
    ]);
    command.args([
        format!("--device={GPU}"),
        format!("--share={share}"),
        format!("--wait={wait}"),
    ]);
    command.arg(scene.option("state-dir", "state"));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut hook = command.spawn().unwrap();
    let state = json!({"ociVersion": "1.0.0", "id": format!("c{}", container.number), "status": "created",
        "pid": container.program.pid(), "bundle": scene.at("state"), "annotations": annotations});
    let mut input = hook.stdin.take().unwrap();
    input.write_all(state.to_string().as_bytes()).unwrap();
    hook
}

/// What a hook says that was refused.
fn refused(output: Output) -> String {
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn the_start_of_a_container_waits_for_its_first_turn() {
    let Some(turns) = Turns::with("the_start_of_a_container_waits_for_its_first_turn", DRIVER, KEPT) else {
        return;
    };
    let holders = || turns.bed.scene.claims().len();
    let first = turns.start(0);
    turns.await_resident(0);
    let program = || TurnsClient::without_context(&turns.library());
    let mut second = turns.made(1, program());
    let said = refused(hook(&turns, &second, "2s").wait_with_output().unwrap());
    let expected = "gpu 0: its first turn has not come: container c0 has had the device for";
    assert!(said.contains(expected) && said.contains("waited 2 s for it"), "{said}");
    assert_eq!(holders(), 1);
    let mut waiting = hook(&turns, &second, "100s");
    until("it holds its share", || holders() == 2);
    until("it is kept from the device", || !second.may_open(&turns));
    std::thread::sleep(Duration::from_secs(2));
    assert!(waiting.try_wait().unwrap().is_none() && !second.may_open(&turns));
    drop(first);
    let output = waiting.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    // Not a moment later: a program that has begun would be refused by the driver.
    assert!(second.may_open(&turns), "{}", turns.logged());
    // One that asks for no wait is started, and cannot open the device before its turn.
    let mut third = turns.made(2, program());
    let output = hook(&turns, &third, "0s").wait_with_output().unwrap();
    assert!(output.status.success() && !third.may_open(&turns), "{output:?}");
    drop(second);
    until("it has its turn", || third.may_open(&turns));
}

#[test]
fn the_start_of_a_container_of_a_user_waits_and_is_not_told_who_has_the_device() {
    let test = "the_start_of_a_container_of_a_user_waits_and_is_not_told_who_has_the_device";
    let Some(turns) = Turns::with(test, DRIVER, KEPT) else {
        return;
    };
    let first = turns.start(0);
    turns.await_resident(0);
    let mut second = turns.made(1, TurnsClient::of_user(&turns.library(), BOB));
    let enter = |wait: &str| {
        let fields = json!({"device": turns.key(), "share": "any", "container": crate::scene::container("c1"),
            "pid": second.program.pid(), "wait": wait});
        turns.bed.scene.ask(BOB, "enter", fields)
    };
    let said = enter("2s").unwrap_err();
    assert!(
        said.contains("its first turn has not come: another holder has had the device for"),
        "{said}"
    );
    assert_eq!(turns.bed.scene.claims().len(), 1);
    let end = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(2));
        drop(first);
    });
    enter("100s").unwrap();
    assert!(second.may_open(&turns), "{}", turns.logged());
    end.join().unwrap();
}
