//! Daemons that do not start, do not answer, answer something else, or end.

use crate::bed::{Bed, Client, UNEQUAL};
use crate::support::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};
use tranche_broker::control::{Control, MachineControl};
use tranche_state::controlled::{ControlledDevice, DaemonState};

/// Kills a process, and waits until it has ended: on a busy machine, it listens for a moment after the signal.
fn kill_hard(pid: u32) {
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
    until("the process has ended", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // After the name, which may have any character.
        let state = stat.rsplit_once(") ").map(|(_, rest)| rest);
        state.is_none_or(|state| state.starts_with(['Z', 'X']))
    });
}

/// Ticks until the device is as wanted.
#[track_caller]
pub(crate) fn tick_until(bed: &Bed, control: &Control, is_so: impl Fn(&ControlledDevice) -> bool) -> ControlledDevice {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        control.tick();
        let device = bed.device(control);
        if is_so(&device) {
            return device;
        }
        assert!(Instant::now() < until, "never happened: {device:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_daemon_that_cannot_serve_is_ended_and_the_claim_is_refused_with_the_reason() {
    let set = "its MPS daemon does not take its limits: set_default_device_pinned_mem_limit 0";
    let cases: [(Value, &str, &str); 10] = [
        (
            json!({"start": "dies"}),
            "its MPS daemon could not be started: nvidia-cuda-mps-control ended at its start (signal: 6",
            "",
        ),
        (
            json!({"start": "refuse"}),
            "its MPS daemon could not be started: nvidia-cuda-mps-control ended at its start (exit status: 1)",
            ": Failed to start the MPS control daemon",
        ),
        (
            json!({"start": "hung"}),
            "its MPS daemon could not be started: it does not listen 8 s after its start",
            "",
        ),
        (json!({"commands": {"*": "hung"}}), set, ": no answer in 2 s"),
        (
            json!({"commands": {"*": "hung"}, "stubborn": true}),
            set,
            ": no answer in 2 s",
        ),
        (
            json!({"commands": {"*": "refuse"}}),
            set,
            "\"Failed to execute the command\" was answered, and a size was expected",
        ),
        (
            json!({"commands": {"*": "garbage"}}),
            set,
            ": an answer that is not text",
        ),
        (json!({"commands": {"front": "endless"}}), set, ": an endless answer"),
        (
            json!({"commands": {"*": "dies"}}),
            "its MPS daemon could not be started: nvidia-cuda-mps-control ended at its start (signal: 6",
            "",
        ),
        (
            json!({"commands": {"get_default_active_thread_percentage": "slow:3000"}}),
            "its MPS daemon does not take its limits: get_default_active_thread_percentage",
            ": no answer in 2 s",
        ),
    ];
    for (faults, begins, contains) in cases {
        let bed = Bed::new(UNEQUAL);
        let control = bed.control();
        bed.fake.set_faults(faults.clone());
        let refused = bed.refused(&control, "small");
        let why = refused.strip_prefix("gpu 0: ").unwrap_or_else(|| panic!("{refused}"));
        assert!(why.starts_with(begins) && why.contains(contains), "{faults}: {refused}");
        assert!(!refused.contains('\n'), "{refused}");
        let device = bed.device(&control);
        assert!(device.problems.contains(&refused), "{device:?}");
        // The kernel takes a moment to end what was killed, on a busy machine.
        until(&format!("{faults}: no daemon without limits is left"), || {
            bed.daemons().is_empty()
        });
        assert_eq!(control.tick(), None, "{faults}");
        bed.assert_as_it_was(&control);
    }
}

#[test]
fn a_slow_daemon_is_waited_for() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.fake
        .set_faults(json!({"start": "slow:1500", "commands": {"*": "slow:300"}}));
    bed.start(&control, "small");
    assert_eq!(bed.device(&control).daemon.unwrap().compute_percent, Some(20));
}

#[test]
fn a_daemon_that_was_killed_is_started_again_with_the_same_limits_and_those_who_lost_it_are_named() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.start(&control, "small");
    bed.start(&control, "big");
    let mut client = Client::attach(&bed);
    let before = bed.device(&control).daemon.unwrap();
    bed.fake.forget();
    kill_hard(before.pid.unwrap());
    assert_eq!(client.end(), "lost the daemon");
    assert!(control.tick().is_some());
    let after = bed.device(&control).daemon.unwrap();
    assert_eq!((after.state, after.restarts), (DaemonState::Running, 1));
    assert_ne!(after.pid, before.pid);
    assert_eq!(
        (after.memory_mib, after.compute_percent),
        (before.memory_mib, before.compute_percent)
    );
    let lost: Vec<&str> = after.lost.iter().map(|lost| lost.container.as_str()).collect();
    assert_eq!(lost, ["container-small", "container-big"]);
    // The server of the daemon that was killed would keep the device.
    assert_eq!(bed.daemons(), [after.pid.unwrap()]);
    assert!(
        bed.fake
            .lines()
            .contains(&"command set_default_active_thread_percentage 80".to_owned())
    );
    assert!(!bed.fake.lines().iter().any(|line| line.starts_with("compute mode")));
    assert!(Client::attach(&bed).limits.contains("percentage 80.0"));
    bed.stop("small");
    bed.stop("big");
    assert_eq!(control.tick(), None);
    bed.assert_as_it_was(&control);
}

#[test]
fn a_claim_that_finds_the_daemon_dead_starts_it() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.start(&control, "small");
    let before = bed.pid(&control);
    kill_hard(before);
    bed.start(&control, "big");
    let daemon = bed.device(&control).daemon.unwrap();
    assert!(
        daemon.pid != Some(before) && daemon.compute_percent == Some(80),
        "{daemon:?}"
    );
}

#[test]
fn a_daemon_that_hangs_is_replaced_after_some_time() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.start(&control, "small");
    let before = bed.pid(&control);
    drop(control);
    bed.fake
        .set_faults(json!({"commands": {"*": "hung"}, "stubborn": true}));
    // A broker that has just started does not know when the daemon answered last.
    let control = bed.control();
    control.tick();
    let device = bed.device(&control);
    let why = "gpu 0: its MPS daemon does not answer: get_default_active_thread_percentage: no answer in 2 s";
    assert_eq!(device.problems, [why]);
    let daemon = device.daemon.unwrap();
    assert_eq!((daemon.state, daemon.pid), (DaemonState::Failed, Some(before)));
    // Its clients may still compute, so it is given time. Nobody gets a share meanwhile.
    assert_eq!(bed.refused(&control, "big"), why.replace("2 s", "4 s"));
    bed.fake.set_faults(json!({}));
    let device = tick_until(&bed, &control, |device| {
        device.daemon.as_ref().is_some_and(|d| d.pid != Some(before))
    });
    let daemon = device.daemon.unwrap();
    assert_eq!(
        (daemon.state, daemon.restarts, daemon.compute_percent),
        (DaemonState::Running, 1, Some(20))
    );
    assert_eq!(device.problems, Vec::<String>::new());
    assert_eq!(daemon.lost[0].container, "container-small");
    assert_eq!(bed.daemons(), [daemon.pid.unwrap()]);
}

#[test]
fn a_daemon_that_fails_again_and_again_is_given_up_until_nothing_is_claimed() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.start(&control, "small");
    bed.fake.set_faults(json!({"start": "refuse"}));
    kill_hard(bed.pid(&control));
    let is_given_up = |device: &ControlledDevice| device.problems.iter().any(|line| line.contains("failed 5 times"));
    let device = tick_until(&bed, &control, is_given_up);
    assert_eq!(device.daemon.unwrap().state, DaemonState::Failed);
    let refused = bed.refused(&control, "big");
    assert!(
        refused.starts_with("gpu 0: its MPS daemon failed 5 times: "),
        "{refused}"
    );
    assert!(refused.contains("Failed to start the MPS control daemon"), "{refused}");
    bed.fake.set_faults(json!({}));
    control.tick();
    assert_eq!(bed.daemons(), Vec::<u32>::new(), "it is not tried again");
    bed.stop("small");
    assert_eq!(control.tick(), None);
    bed.assert_as_it_was(&control);
    bed.start(&control, "big");
    assert_eq!(bed.device(&control).daemon.unwrap().state, DaemonState::Running);
}

#[test]
fn a_larger_claim_is_refused_if_the_daemon_does_not_take_its_limits() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.start(&control, "small");
    let pid = bed.pid(&control);
    bed.fake
        .set_faults(json!({"commands": {"set_default_active_thread_percentage": "refuse"}}));
    let refused = bed.refused(&control, "big");
    assert!(
        refused.contains("set_default_active_thread_percentage 80: \"Failed to execute"),
        "{refused}"
    );
    bed.fake.set_faults(json!({}));
    control.tick();
    // The memory was raised before that failed.
    let daemon = bed.device(&control).daemon.unwrap();
    assert_eq!(
        (daemon.pid, daemon.memory_mib, daemon.compute_percent),
        (Some(pid), Some(4912), Some(20))
    );
    assert!(Client::attach(&bed).limits.contains("percentage 20.0"));
    assert!(Client::attach(&bed).limits.contains("=4912M"));
}
