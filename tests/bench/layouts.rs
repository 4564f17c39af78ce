//! Runs that change the layout of MIG, and put it back.

use crate::bed::{Bed, Said, alone};
use crate::ends::guard;
use crate::runs::{run, verdict};
use crate::support::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs;
use std::process::{Child, Stdio};

/// What the machine has before, other than each way of the run.
const BEFORE: &str = "2g.35gb@4,1g.18gb@2";

/// The layout of GPU 0, without its UUID.
fn layout(bed: &Bed) -> String {
    let status: Value = serde_json::from_str(&bed.tranche(&["mig", "status", "--json"]).out).unwrap();
    status[0]["layout"].as_str().unwrap().to_owned()
}

/// Instances of the run are there, or one of them is.
fn has_halves(bed: &Bed) -> bool {
    let state = fs::read_to_string(bed.at("host/fake-nvml.mig.json")).unwrap_or_default();
    state.contains("3g.71gb")
}

/// A machine with instances of its own.
fn divided() -> Bed {
    let bed = Bed::with_mig();
    let layout = format!("0:{BEFORE}");
    let said = bed.tranche(&["mig", "apply", "--yes", "--mode", "--layout", &layout]);
    assert_eq!(said.code, Some(0), "{said:?}");
    bed
}

/// A run that has begun to make the instances of its second way.
fn changing(bed: &Bed) -> Child {
    let mut command = bed.bench(5, &["--way=mig-2", "--beside=idle", "--half", "--change-layout"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until("it makes instances", || has_halves(bed));
    child
}

fn assert_as_before(bed: &Bed, before: &str) {
    bed.assert_as_it_was();
    assert_eq!(layout(bed), before);
    // The specifications have the instances that there are now.
    let specification = fs::read_to_string(bed.at("cdi/tranche.yaml")).unwrap();
    let status: Value = serde_json::from_str(&bed.tranche(&["mig", "status", "--json"]).out).unwrap();
    for instance in status[0]["instances"].as_array().unwrap() {
        let uuid = instance["devices"][0]["uuid"].as_str().unwrap();
        assert!(specification.contains(uuid), "{uuid}: {specification}");
    }
}

#[test]
fn instances_are_measured_where_layouts_may_change() {
    alone(|| {
        let bed = Bed::with_mig();
        assert_eq!(layout(&bed), "off");
        let ways = [
            "--way=mig-2",
            "--way=mig-mps",
            "--beside=hog-sm",
            "--beside=fault",
            "--half",
        ];
        let (results, _) = run(&bed, &[&ways[..], &["--change-layout"]].concat());
        bed.assert_as_it_was();
        assert_eq!(layout(&bed), "off");
        assert_eq!(results["leftovers"], json!([]), "{results:#}");
        for (of, figure) in [
            ("compute", "seen 60 of 60 SMs, p99 "),
            ("faults", "went on after the neighbour's fault"),
        ] {
            let (outcome, seen) = verdict(&results, "mig-2", of);
            assert!(outcome == "held" && seen.starts_with(figure), "{of}: {outcome}: {seen}");
        }
        let (_, seen) = verdict(&results, "mig-mps", "compute");
        assert!(seen.starts_with("cap 50 %, seen 30 of 60 SMs"), "{seen}");
        // Engines never saw the instances.
        assert!(!bed.at("cdi").exists());
    });
}

#[test]
fn a_layout_that_may_not_change_is_refused_in_one_line() {
    let bed = Bed::with_mig();
    let said: Said = bed.bench(1, &["--way=mig-2"]).output().unwrap().into();
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(
        said.err.contains("cannot be shared by mig-2: needs the layout GPU-")
            && said.err.contains(":2x3g.71gb, which --change-layout allows")
            && said.err.lines().count() == 1,
        "{said:?}"
    );
    drop(bed);
    let divided = divided();
    let before = layout(&divided);
    let said: Said = divided.bench(1, &[]).output().unwrap().into();
    assert!(
        said.err.contains(":off, which --change-layout allows") && said.err.lines().count() == 1,
        "{said:?}"
    );
    assert_eq!(layout(&divided), before);
}

#[test]
fn a_layout_is_put_back_when_the_run_is_killed() {
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let bed = divided();
        let before = layout(&bed);
        let mut child = changing(&bed);
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        child.wait().unwrap();
        until("the guard puts back", || !bed.at("state/bench").exists());
        assert_as_before(&bed, &before);
    }
}

#[test]
fn a_layout_that_a_run_and_its_guard_leave_is_put_back_by_the_next() {
    let bed = divided();
    let before = layout(&bed);
    let mut child = changing(&bed);
    let guard = guard(&bed);
    kill(guard, Signal::SIGKILL).unwrap();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    until("the guard ends", || {
        !std::path::Path::new(&format!("/proc/{guard}")).exists()
    });
    assert_ne!(layout(&bed), before);
    let said = bed.tranche(&["bench", "restore"]);
    assert_eq!((said.code, said.out.as_str()), (Some(0), "put back\n"), "{said:?}");
    assert_as_before(&bed, &before);
}
