//! A broker that is killed at a call of NVML while it makes an instance on demand or destroys one, or whose child is.
//! `TRANCHE_TEST_MIG_EVERY_CALL=1` does it before and after each call (two hours).

use crate::bed::{Bed, Said};
use crate::support::{sample, until};
use serde_json::{Value, json};
use std::fs;
use tranche_core::ledger::Ledger;

/// Of calls that change nothing, every one of so many is tried where everything is done.
const STRIDE: usize = 211;

/// A call at which the process is killed that asks for it.
#[derive(Debug, Clone)]
struct Point {
    /// Only calls of this function count.
    function: Option<String>,
    /// How many calls come before.
    spared: usize,
    /// Whether the call is made.
    after: bool,
}

/// Lets a process be killed at this call from now on.
fn kill_at(bed: &Bed, at: Option<&Point>) {
    let calls = bed.at("calls");
    let kill = at.map(
        |Point {
             function,
             spared,
             after,
         }| {
            let _ = fs::remove_file(&calls);
            json!({"calls": calls, "function": function, "spared": spared, "after": after})
        },
    );
    // The library stays as it is: it may be loaded at this moment.
    let (file, new) = (bed.at("host/fake-nvml.json"), bed.at("host/fake-nvml.json.new"));
    let mut config: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    config["faults"]["kills_parent"] = json!(kill);
    fs::write(&new, config.to_string()).unwrap();
    fs::rename(&new, &file).unwrap();
}

/// The functions that were called since [`kill_at`].
fn calls(bed: &Bed) -> Vec<String> {
    let calls = fs::read_to_string(bed.at("calls")).unwrap_or_default();
    calls.lines().map(str::to_owned).collect()
}

fn create(bed: &Bed) -> Said {
    bed.tranche(&["claim", "create", "--name", "train", "--mig", "2g.10gb"])
}

fn is_forgotten(bed: &Bed) -> bool {
    let text = fs::read_to_string(bed.at("state/mig-on-demand.json")).unwrap_or_default();
    !text.contains("\"uuid\"")
}

/// Where processes are killed: before and after each call that changes something, and some of the others. Their numbers
/// differ from time to time, because several processes ask at once.
fn points(calls: &[String]) -> Vec<Point> {
    let changes = calls
        .iter()
        .filter(|call| call.contains("Create") || call.contains("Destroy"));
    let changes = changes.map(|function| (Some(function.clone()), 0));
    let stride = match std::env::var_os("TRANCHE_TEST_MIG_EVERY_CALL") {
        Some(_) => 1,
        None => sample::number(4, 1) * STRIDE,
    };
    let others = (0..calls.len()).step_by(stride).map(|spared| (None, spared));
    let all = changes.chain(others).flat_map(|(function, spared)| {
        [false, true].map(|after| Point {
            function: function.clone(),
            spared,
            after,
        })
    });
    all.collect()
}

/// Whether the broker was killed, and has ended by now. Another process that asked NVML may have been instead.
fn is_killed(bed: &mut Bed) -> bool {
    let is = calls(bed).contains(&format!("killed {}", bed.pid()));
    if is {
        until("the broker has ended", || bed.has_ended());
    }
    is
}

/// Starts a broker in the place of one that was killed, and waits until nothing of `train` is left.
fn go_on(bed: &mut Bed, spared: usize, at: &str) {
    kill_at(bed, None);
    // Who comes to the call kills, perhaps a moment later.
    until(&format!("{at}: one is killed"), || {
        let calls = calls(bed);
        calls.len() <= spared || calls.iter().any(|call| call.starts_with("killed"))
    });
    if is_killed(bed) {
        bed.start();
    }
    let journal = bed.at("state/mig-change.json");
    until(&format!("{at}: the change is finished"), || !journal.exists());
    // The claim, or what was reserved for it while it was not made.
    let books = Ledger::existing(&bed.at("state")).unwrap().unwrap().books().unwrap();
    for name in books.claims().filter_map(|claim| claim.name.as_deref()) {
        let released = bed.tranche(&["claim", "release", name]);
        assert_eq!(released.code, Some(0), "{at}: {released:?}");
    }
    until(&format!("{at}: the instance is destroyed"), || bed.layout(0) == "empty");
    until(&format!("{at}: it is forgotten"), || is_forgotten(bed));
}

#[test]
fn whatever_was_done_when_it_is_killed_the_next_one_goes_on() {
    let mut bed = Bed::new("dgx-a100-mig");
    bed.apply("0:empty");
    bed.policy("version: v1\nmig: {onDemand: {devices: [0]}}\n");
    let nowhere = Point {
        function: None,
        spared: usize::MAX - 1,
        after: false,
    };
    kill_at(&bed, Some(&nowhere));
    let said = create(&bed);
    assert_eq!(said.code, Some(0), "{said:?}");
    let made = calls(&bed);
    kill_at(&bed, Some(&nowhere));
    assert_eq!(bed.tranche(&["claim", "release", "train"]).code, Some(0));
    until("the instance is destroyed", || is_forgotten(&bed));
    let destroyed = calls(&bed);
    go_on(&mut bed, usize::MAX, "before");
    let making = points(&made).into_iter().map(|point| (true, point));
    let destroying = points(&destroyed).into_iter().map(|point| (false, point));
    let (mut killed, mut unfinished) = (0, 0);
    for (makes, point) in making.chain(destroying) {
        let at = format!("{}: {point:?}", if makes { "make" } else { "destroy" });
        if makes {
            kill_at(&bed, Some(&point));
            create(&bed);
        } else {
            let said = create(&bed);
            assert_eq!(said.code, Some(0), "{at}: {said:?}");
            kill_at(&bed, Some(&point));
            assert_eq!(bed.tranche(&["claim", "release", "train"]).code, Some(0), "{at}");
            let is_one_killed = |bed: &Bed| calls(bed).iter().any(|call| call.starts_with("killed"));
            until(&at, || is_one_killed(&bed) || is_forgotten(&bed));
        }
        killed += usize::from(is_killed(&mut bed));
        unfinished += usize::from(bed.at("state/mig-change.json").exists());
        go_on(&mut bed, point.spared, &at);
    }
    println!("{killed} brokers were killed, {unfinished} of them within a change");
    // Before and after each of the four changes.
    assert!(unfinished >= 8, "{unfinished} of {killed}");
}
