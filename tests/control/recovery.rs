//! A broker that ends, or is killed, at any step: the next one goes on, or puts the device back.

use crate::bed::{Bed, Client, UNEQUAL};
use crate::support::fake_host::fake_library;
use crate::support::skip;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use tranche_broker::control::MachineControl;
use tranche_state::controlled::DaemonState;

#[test]
fn the_next_broker_adopts_the_daemon() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.start(&control, "small");
    let client = Client::attach(&bed);
    let (pid, server) = (bed.pid(&control), client.server());
    drop(control);
    bed.fake.forget();
    let control = bed.control();
    assert_eq!(bed.pid(&control), pid, "it is shown at once");
    assert!(control.tick().is_some());
    let asked = [
        "command get_default_active_thread_percentage",
        "command get_default_device_pinned_mem_limit 0",
    ];
    assert_eq!(bed.fake.lines(), asked);
    let daemon = bed.device(&control).daemon.unwrap();
    assert_eq!(
        (daemon.state, daemon.pid, daemon.restarts),
        (DaemonState::Running, Some(pid), 0)
    );
    assert_eq!(Client::attach(&bed).server(), server);
    drop(control);
    bed.stop("small");
    drop(client);
    // A container that ended while no broker ran.
    let control = bed.control();
    assert_eq!(control.tick(), None);
    bed.assert_as_it_was(&control);
}

#[test]
fn a_device_stays_for_the_grace_period_which_a_restart_does_not_extend() {
    let bed = Bed::new(&UNEQUAL.replace("grace: 0", "grace: 600"));
    let control = bed.control();
    bed.start(&control, "small");
    let pid = bed.pid(&control);
    bed.stop("small");
    assert!(control.tick().is_some());
    let idle = bed.device(&control).idle_since.unwrap();
    drop(control);
    let control = bed.control();
    assert!(control.tick().is_some());
    assert_eq!((bed.device(&control).idle_since, bed.pid(&control)), (Some(idle), pid));
    // A claim that comes in time finds the daemon running.
    bed.start(&control, "big");
    assert_eq!((bed.device(&control).idle_since, bed.pid(&control)), (None, pid));
    bed.stop("big");
    assert!(control.tick().is_some());
    // 601 seconds later.
    drop(control);
    bed.edit_journal(|journal| {
        let since = journal["changes"]["idle_since"].as_u64().unwrap();
        journal["changes"]["idle_since"] = (since - 601).into();
    });
    let control = bed.control();
    assert_eq!(control.tick(), None);
    bed.assert_as_it_was(&control);
}

#[test]
fn a_journal_is_followed_whatever_it_says_of_the_boot() {
    let bed = Bed::new(UNEQUAL);
    fs::create_dir_all(bed.state()).unwrap();
    let control = bed.control();
    bed.start(&control, "small");
    let pid = bed.pid(&control);
    drop(control);
    // As an earlier version of tranche wrote it, and as a container of systemd-nspawn sees it.
    bed.edit_journal(|journal| journal["boot"] = "00000000-0000-0000-0000-000000000000".into());
    let control = bed.control();
    assert!(control.tick().is_some());
    assert_eq!(bed.pid(&control), pid, "the daemon of the container that lives");
}

#[test]
fn a_journal_that_cannot_be_read_keeps_its_device_alone_from_use() {
    let bed = Bed::new(UNEQUAL);
    drop(bed.control());
    let journal = bed.state().join("control/0.json");
    for text in ["", "{", "{\"version\":1}", "[]"] {
        fs::write(&journal, text).unwrap();
        let control = bed.control();
        let refused = bed.refused(&control, "small");
        assert!(
            refused.contains("control/0.json: is not a valid journal; it says how to put the device back"),
            "{refused}"
        );
        assert_eq!((control.tick(), bed.fake.lines().len()), (None, 0));
        assert_eq!(fs::read_to_string(&journal).unwrap(), text);
    }
    fs::remove_file(&journal).unwrap();
    bed.start(&bed.control(), "small");
}

#[test]
fn a_journal_that_cannot_be_read_is_shown_and_a_file_of_a_killed_broker_is_removed() {
    let bed = Bed::new(UNEQUAL);
    drop(bed.control());
    let control_dir = bed.state().join("control");
    // As kill -9 leaves it between the two steps of a replacement, a moment ago.
    let left = [".tranche-new", ".tranche-new-0123456789abcdef"];
    let others = [".tranche-newer", ".tranche-new-x", "README"];
    for name in left.iter().chain(&others) {
        fs::write(control_dir.join(name), "half").unwrap();
    }
    fs::write(control_dir.join("0.json"), "{").unwrap();
    let control = bed.control();
    for (name, stays) in left.iter().map(|n| (n, false)).chain(others.iter().map(|n| (n, true))) {
        assert_eq!(control_dir.join(name).exists(), stays, "{name}");
    }
    let said = control.unreadable();
    assert!(
        control.devices().is_empty()
            && said.len() == 1
            && said[0].contains("control/0.json: is not a valid journal: ")
            && said[0].contains("; it says how to put the device back"),
        "{said:?}"
    );
    fs::remove_file(control_dir.join("0.json")).unwrap();
    assert_eq!(control.unreadable(), [""; 0]);
}

#[test]
fn a_daemon_that_a_person_started_stays_until_a_person_stops_it() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    control.start(bed.key()).unwrap();
    assert!(control.tick().is_some());
    drop(control);
    let control = bed.control();
    assert!(control.tick().is_some());
    let daemon = bed.device(&control).daemon.unwrap();
    assert_eq!(
        (daemon.state, daemon.compute_percent),
        (DaemonState::Running, Some(100))
    );
    bed.start(&control, "small");
    assert!(control.tick().is_some());
    assert_eq!(bed.device(&control).daemon.unwrap().compute_percent, Some(20));
    let refused = control.stop(bed.key(), false).unwrap_err().to_string();
    assert!(
        refused.starts_with("gpu 0: a container holds a share of it; stop them first, or use --force"),
        "{refused}"
    );
    control.restart(bed.key()).unwrap();
    let after = bed.device(&control).daemon.unwrap();
    assert!(
        after.pid != daemon.pid && after.compute_percent == Some(20),
        "{after:?}"
    );
    bed.stop("small");
    assert!(control.tick().is_some());
    control.stop(bed.key(), false).unwrap();
    bed.assert_as_it_was(&control);
    let nothing = control.stop(bed.key(), false).unwrap_err();
    assert_eq!(nothing.kind(), tranche_core::error::Kind::Nothing);
}

/// A process that acts once, behind strace. Only its first thread is traced: it writes the journal and starts programs.
pub(crate) fn behind(bed: &Bed, act: &str, options: &[&str]) -> Command {
    let policy = bed.at("policy.yaml");
    fs::write(&policy, UNEQUAL).unwrap();
    let mut command = Command::new("strace");
    command
        .arg("-qq")
        .args(options)
        .arg(fake_library::build("control").unwrap().join("control"));
    command
        .arg(act)
        .args([bed.state(), bed.host.root.clone(), policy])
        .arg(env!("CARGO_BIN_EXE_tranche"));
    command
}

/// Calls that change a file or start a program, and the ones that wait for a program.
const CHANGING: [&str; 8] = [
    "linkat",
    "renameat",
    "renameat2",
    "unlinkat",
    "mkdirat",
    "clone3",
    "vfork",
    "wait4",
];

/// How often the process that acts makes each call.
pub(crate) fn calls(bed: &Bed, act: &str) -> BTreeMap<&'static str, usize> {
    let trace = bed.at("trace");
    let set = format!("trace={}", CHANGING.map(|name| format!("?{name}")).join(","));
    let output = behind(bed, act, &["-o", trace.to_str().unwrap(), "-e", &set])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(trace).unwrap();
    let count = |name: &str| {
        text.lines()
            .filter(|line| line.starts_with(&format!("{name}(")))
            .count()
    };
    CHANGING.into_iter().map(|name| (name, count(name))).collect()
}

/// Kills a broker at each step of what it does for `act`, and lets the next one go on.
fn killed_anywhere(act: &str) {
    let test = format!("control::recovery::a_broker_that_is_killed_anywhere ({act})");
    if Command::new("strace").arg("-V").output().is_err() {
        return skip::not_run(&test, "no strace");
    }
    let set_up = || {
        let bed = Bed::new(UNEQUAL);
        let control = bed.control();
        match act {
            "first" => bed.claim("small"),
            "larger" => {
                bed.start(&control, "small");
                bed.claim("big");
            }
            "lower" => {
                bed.start(&control, "small");
                bed.start(&control, "big");
                bed.stop("big");
            }
            _ => {
                bed.start(&control, "small");
                bed.stop("small");
            }
        }
        let pid = control.devices().first().and_then(|device| device.daemon.as_ref()?.pid);
        (bed, pid)
    };
    let verb = if act == "first" || act == "larger" {
        "prepare"
    } else {
        "tick"
    };
    let all = calls(&set_up().0, verb);
    assert!(all.values().sum::<usize>() > 10, "{act}: {all:?}");
    for (name, count) in all {
        // Many calls are the same step: the first ones, the last one, and some between.
        let step = count.div_ceil(4).max(1);
        for when in (1..=count).step_by(step).chain([count]).filter(|when| *when > 0) {
            let (bed, pid) = set_up();
            let inject = format!("inject={name}:signal=KILL:when={when}");
            let output = behind(
                &bed,
                verb,
                &["-o", "/dev/null", "-e", &format!("trace={name}"), "-e", &inject],
            )
            .output()
            .unwrap();
            let at = format!("{act}: killed at {name} {when}");
            // How often it waits is a matter of timing: a later call may not come. The first one always does.
            let killed = output.status.code().is_none();
            assert!(killed || when > 1, "{at}: it ended by itself");
            let control = bed.control();
            // The next broker goes on. What the claims need is there after a claim is asked for again.
            control.tick();
            if act == "back" {
                assert_eq!(control.tick(), None, "{at}: {:?}", control.devices());
                bed.assert_as_it_was(&control);
                continue;
            }
            control
                .prepare(bed.key())
                .unwrap_or_else(|error| panic!("{at}: {error}"));
            control.tick();
            let daemon = bed.device(&control).daemon.unwrap();
            let percent = if act == "larger" { 80 } else { 20 };
            assert_eq!(
                (daemon.state, daemon.compute_percent),
                (DaemonState::Running, Some(percent)),
                "{at}"
            );
            assert!(pid.is_none() || daemon.pid == pid, "{at}: the daemon was not adopted");
            assert_eq!(bed.daemons(), [daemon.pid.unwrap()], "{at}");
            assert!(
                Client::attach(&bed).limits.contains(&format!("percentage {percent}.0")),
                "{at}"
            );
            for share in ["small", "big"] {
                if act == "larger" || share == "small" {
                    bed.stop(share);
                }
            }
            assert_eq!(control.tick(), None, "{at}");
            bed.assert_as_it_was(&control);
        }
    }
}

#[test]
fn a_broker_that_is_killed_at_the_first_claim_leaves_nothing() {
    killed_anywhere("first");
}

#[test]
fn a_broker_that_is_killed_at_a_larger_claim_leaves_nothing() {
    killed_anywhere("larger");
}

#[test]
fn a_broker_that_is_killed_when_the_largest_claim_ends_leaves_nothing() {
    killed_anywhere("lower");
}

#[test]
fn a_broker_that_is_killed_when_the_last_claim_ends_leaves_nothing() {
    killed_anywhere("back");
}

#[test]
fn a_broker_that_is_killed_before_its_first_claim_is_served_leaves_nothing_if_that_claim_is_gone() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.start(&control, "small");
    drop(control);
    // As if it had been killed after it had started the daemon and before it was ready.
    bed.edit_journal(|journal| {
        journal["changes"]["is_ready"] = false.into();
        journal["changes"]["daemon"]["is_ready"] = false.into();
        journal["changes"]["daemon"]["process"] = Value::Null;
        journal["changes"]["daemon"]["limits"] = Value::Null;
        journal["changes"]["mode"] = serde_json::json!({"changing": "default"});
        journal["target"]["grace"] = 600.into();
    });
    bed.stop("small");
    let control = bed.control();
    assert_eq!(control.tick(), None);
    bed.assert_as_it_was(&control);
}

/// Its journal has no directory that the daemon works in: that is the one of its clients.
#[test]
fn a_daemon_of_an_earlier_version_serves_its_containers_and_no_others() {
    let bed = Bed::new(UNEQUAL);
    let control = bed.control();
    bed.start(&control, "small");
    let pid = bed.pid(&control);
    drop(control);
    bed.edit_journal(|journal| drop(journal["target"].as_object_mut().unwrap().remove("work")));
    let control = bed.control();
    assert!(control.tick().is_some());
    let device = bed.device(&control);
    let daemon = device.daemon.unwrap();
    assert!(daemon.is_of_earlier_version && daemon.pid == Some(pid), "{daemon:?}");
    assert!(
        device.problems.iter().any(|line| line.contains("grades: none")),
        "{:?}",
        device.problems
    );
    let refused = bed.refused(&control, "big");
    assert!(
        refused.contains("was started by an earlier version of tranche"),
        "{refused}"
    );
    assert_eq!(bed.pid(&control), pid, "its container keeps it");
    bed.stop("small");
    bed.start(&control, "big");
    let daemon = bed.device(&control).daemon.unwrap();
    assert!(!daemon.is_of_earlier_version && daemon.pid != Some(pid), "{daemon:?}");
    bed.stop("big");
    assert_eq!(control.tick(), None);
    bed.assert_as_it_was(&control);
}
