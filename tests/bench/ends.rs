//! Runs that end early, and runs that do not begin.

use crate::bed::{Bed, Said};
use crate::support::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::process::{Child, Stdio};

/// A run that measures under MPS.
fn measuring(bed: &Bed) -> Child {
    let mut command = bed.bench(5, &["--way=mps-50-50", "--beside=idle", "--half"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("it measures under MPS", || {
        bed.at("state/bench/state/mps/0/control").exists()
    });
    child
}

/// The guard of a run: the process that the ledger names.
pub(crate) fn guard(bed: &Bed) -> Pid {
    let claims = bed.tranche(&["claim", "list", "--json"]).out;
    let claims: serde_json::Value = serde_json::from_str(&claims).unwrap();
    let holder = &claims[0];
    let pid = holder["pid"].as_i64().or_else(|| holder["process"]["pid"].as_i64());
    Pid::from_raw(pid.unwrap_or_else(|| panic!("{claims:#}")) as i32)
}

#[test]
fn whoever_is_killed_everything_is_put_back() {
    for (signal, is_answered) in [(Signal::SIGINT, true), (Signal::SIGKILL, false)] {
        let bed = Bed::new();
        let child = measuring(&bed);
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        let said: Said = child.wait_with_output().unwrap().into();
        assert_eq!(said.code.is_some(), is_answered, "{said:?}");
        assert!(
            !is_answered || said.err.contains("was ended; nothing was written"),
            "{said:?}"
        );
        until("the guard puts back", || !bed.at("state/bench").exists());
        bed.assert_as_it_was();
    }
}

#[test]
fn what_a_run_and_its_guard_leave_is_put_back_by_the_next() {
    let bed = Bed::new();
    let mut child = measuring(&bed);
    let guard = guard(&bed);
    kill(Pid::from_raw(child.id() as i32), Signal::SIGKILL).unwrap();
    kill(guard, Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    until("the programs end", || {
        !std::path::Path::new(&format!("/proc/{guard}")).exists()
    });
    assert!(bed.at("state/bench").exists());
    let said = bed.tranche(&["bench", "restore"]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "put back\n"), "{said:?}");
    bed.assert_as_it_was();
    let said = bed.tranche(&["bench", "restore"]);
    assert_eq!(said.out, "there is nothing to put back\n", "{said:?}");
}

#[test]
fn a_device_in_use_is_refused_in_one_line() {
    let bed = Bed::new();
    // By a process that tranche does not know.
    let me = std::process::id();
    let processes = json!([{"pid": me, "kind": "compute", "memory_mib": 100}]);
    bed.host
        .nvml(|config| config["gpus"][0]["processes"] = processes)
        .unwrap();
    let said: Said = bed.bench(1, &[]).output().unwrap().into();
    assert_ne!(said.code, Some(0));
    assert!(
        said.err.contains(&format!("({me})")) && said.err.lines().count() == 1,
        "{said:?}"
    );
    bed.host
        .nvml(|config| config["gpus"][0]["processes"] = json!([]))
        .unwrap();
    // By a holder in the ledger.
    std::fs::write(
        bed.at("policy.yaml"),
        "version: v1\nsharing: {dedicated: {devices: [0]}}\n",
    )
    .unwrap();
    let claimed = bed.tranche(&["claim", "create", "--name", "train", "--device", "0"]);
    assert_eq!(claimed.code, Some(0), "{claimed:?}");
    let said: Said = bed.bench(1, &["--way=ts2"]).output().unwrap().into();
    assert_ne!(said.code, Some(0));
    let last = said.err.lines().last().unwrap();
    assert!(last.contains("train"), "{said:?}");
    assert!(!bed.at("state/bench/state").exists());
}

#[test]
fn bad_input_costs_one_line() {
    let bed = Bed::new();
    for (arguments, expected) in [
        (&["bench", "9"][..], "device 9: not found"),
        (&["bench"], "DEVICE"),
        (&["bench", "0", "--way=fast"], "way of sharing"),
        (&["bench", "0", "--way=mig-2"], "MIG"),
        (&["bench", "0", "--inventory=sim:t4x2"], "--inventory"),
        (&["bench", "0"], "tranche-load"),
        (&["bench", "compare", "/nowhere", "/dev/null"], "/nowhere"),
    ] {
        let said = bed.tranche(arguments);
        assert_ne!(said.code, Some(0), "{arguments:?}: {said:?}");
        assert!(
            said.err.contains(expected) && said.err.lines().count() == 1,
            "{arguments:?}: {said:?}"
        );
    }
}
