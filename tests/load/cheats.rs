//! A GPU that breaks its promises: each break is seen in what `tranche-load` reports.

use crate::machine::{ITERATION, MIB, MS, Machine, SMS, near, now, number, run};
use crate::support::measured::measured;
use serde_json::json;

#[test]
fn a_cap_that_is_ignored_shows_in_the_rate_and_in_the_sms() {
    measured(|| {
        let machine = Machine::that_cheats("cap");
        let mut load = machine.start_client("batch --fma 1000 --bytes 0", 50);
        assert_eq!(load.ready()["sms"], SMS / 2, "it still says so");
        drop(load);
        let [ended] = run([machine.start_client("batch --fma 1000 --bytes 0", 50)], 300 * MS);
        near(ended.rate(), 1.0 / (1000.0 * ITERATION));
        let [probe] = run([machine.start_client("probe", 50)], 50 * MS);
        assert_eq!(probe.complete()[0]["sms"], json!((0..SMS).collect::<Vec<_>>()));
    });
}

#[test]
fn a_limit_of_memory_that_is_ignored_shows_in_what_was_allocated() {
    let machine = Machine::that_cheats("memory");
    let pipe = machine.top.path().join("mps");
    let pipe = ("CUDA_MPS_PIPE_DIRECTORY", pipe.to_str().unwrap());
    let mut load = machine.start_with("greedy", &[pipe, ("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=1000M")]);
    assert_eq!(number(&load.ready(), "free_bytes"), 999 * MIB);
    load.say(&format!("start {} {}\n", now(), now() + 100 * MS));
    assert_eq!(number(&load.event(), "bytes"), 4094 * MIB);
}

#[test]
fn a_fault_that_crosses_turns_shows_in_the_neighbour() {
    let machine = Machine::that_cheats("faults");
    let [fault, neighbour] = run(
        [machine.start("fault"), machine.start("batch --fma 200 --bytes 0")],
        200 * MS,
    );
    assert_eq!(fault.complete()[0]["event"], "faulted");
    assert_eq!(
        (neighbour.code, &neighbour.events.last().unwrap()["code"]),
        (Some(1), &json!(719))
    );
}

#[test]
fn unequal_turns_show_in_the_rates() {
    measured(|| {
        let machine = Machine::that_cheats("turns");
        // Longer than a turn.
        let load = "batch --fma 4000 --bytes 0";
        let [one, other] = run([machine.start(load), machine.start(load)], 600 * MS);
        let (one, other) = (one.rate(), other.rate());
        assert!(one.max(other) > 1.8 * one.min(other), "{one} {other}");
    });
}
