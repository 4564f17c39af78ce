//! Programs of users, without a container, that hold something for too long.

use crate::limits::scene;
use crate::programs::run;
use crate::scene::{BOB, GPU_1};
use crate::support::test_cgroup::TestCgroup;
use crate::support::{skip, until};
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use tranche_core::claims::{ClaimEntry, Claims};
use tranche_core::ledger::{Bounds, Change, Holder, Ledger};
use tranche_core::types::Subject;

/// A process that does not outlive the test.
struct Stubborn(Child);

impl Drop for Stubborn {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process of the user in the cgroup, which ignores SIGTERM and starts no other.
fn stubborn(cgroup: &TestCgroup) -> Stubborn {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={BOB}"), format!("--regid={BOB}")]);
    command.args(["--clear-groups", "env", "--ignore-signal=TERM", "sleep", "1000"]);
    let child = Stubborn(
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let comm = format!("/proc/{}/comm", child.0.id());
    until("it has become sleep", || {
        fs::read_to_string(&comm).unwrap().trim_end() == "sleep"
    });
    cgroup.add(child.0.id());
    child
}

#[test]
fn a_program_that_is_held_for_too_long_is_killed_with_what_it_started() {
    let test = "a_program_that_is_held_for_too_long_is_killed_with_what_it_started";
    let Some(mut scene) = scene(test, "    default: {maxHold: 1s, atLimit: end, grace: 2s}\n") else {
        return;
    };
    scene.stop(Signal::SIGTERM);
    let cgroup = match TestCgroup::new("program") {
        Ok(cgroup) => cgroup,
        Err(why) => return skip::not_run(&format!("broker::ended::{test}"), &why),
    };
    let mut program = stubborn(&cgroup);
    let entry = ClaimEntry {
        device: GPU_1.parse().unwrap(),
        subject: Subject::WHOLE,
        replicas: 0,
        bounds: Bounds::default(),
        asked_as: None,
        alone: true,
    };
    let holder = Holder::Process {
        program: "train".to_owned(),
        id: "1".to_owned(),
    };
    let state = scene.at("state");
    let claims = Claims::open(&state).unwrap();
    claims.enter(&entry, holder, Some(program.0.id())).unwrap();
    // As if the user had asked for it.
    let ledger = Ledger::open(&state).unwrap();
    let of_user = ledger.lock().unwrap().change_each(|book| {
        book.claims.iter_mut().for_each(|claim| claim.uid = BOB);
        Change::Made
    });
    assert!(of_user.unwrap().is_empty());
    let held = scene.claims();
    assert!(held[0].process.as_ref().unwrap().cgroup.is_some(), "{held:?}");
    let mut left = stubborn(&cgroup);
    scene.start();
    for child in [&mut program, &mut left] {
        until("it is killed", || child.0.try_wait().unwrap().is_some());
        let status = child.0.wait().unwrap();
        assert_eq!(status.signal(), Some(Signal::SIGKILL as i32));
    }
    until("nothing is held", || scene.seen(BOB).is_empty());
}

#[test]
fn a_program_is_ended_at_the_limit_of_its_user() {
    let test = "a_program_is_ended_at_the_limit_of_its_user";
    let Some(scene) = scene(test, "    default: {maxHold: 1s, atLimit: end, grace: 20s}\n") else {
        return;
    };
    let ended = run(&scene, BOB, &["--share", "1", "--", "sleep", "1000"]);
    assert_eq!(ended.status.code(), Some(128 + Signal::SIGTERM as i32), "{ended:?}");
    assert!(scene.seen(BOB).is_empty());
    // Within the limit, nothing happens to it.
    let done = run(&scene, BOB, &["--share", "1", "--", "true"]);
    assert!(done.status.success(), "{done:?}");
}
