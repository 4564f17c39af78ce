//! A GPU that cheats is found, and an honest one is not blamed.

use super::gpu::{Cheats, results, run};
use crate::cell::Neighbour;
use crate::results::Results;
use crate::verdict::Outcome;
use std::collections::BTreeSet;

/// `mps-50-50 first memory` and the like, of everything with this outcome.
fn with(results: &Results, outcome: Outcome) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for way in &results.ways {
        for share in &way.shares {
            let these = share.verdicts.iter().filter(|verdict| verdict.outcome == outcome);
            found.extend(these.map(|verdict| format!("{} {} {}", way.way, share.name, verdict.of)));
        }
    }
    found
}

fn line(results: &Results, way: &str, share: usize, of: usize) -> String {
    let way = results.ways.iter().find(|one| one.way.to_string() == way).unwrap();
    way.shares[share].verdicts[of].to_string()
}

#[test]
fn an_honest_gpu_holds_what_is_promised() {
    let honest = results(Cheats::default());
    assert_eq!(with(&honest, Outcome::NotHeld), [].into());
    // Only the first process measures what its neighbour does to it.
    let open = ["mig-2 0:1 bandwidth", "mig-2 0:1 faults", "ts2 1 faults"];
    assert_eq!(with(&honest, Outcome::NotMeasured), open.map(str::to_owned).into());
    let held = with(&honest, Outcome::Held);
    for guarantee in [
        "mps-50-50 first memory",
        "mps-80-20 second compute",
        "mig-2 0:0 bandwidth",
        "mig-2 0:0 faults",
        "mig-2 0:1 memory",
        "mig-mps first compute",
        "ts2 0 faults",
    ] {
        assert!(held.contains(guarantee), "{guarantee}: {held:?}");
    }
    assert_eq!(with(&honest, Outcome::NotPromised).len(), 6 + 8 + 4 * 3);
    assert!(
        honest.ways[0].shares[0].verdicts.is_empty(),
        "a process alone has nobody to be kept from"
    );
}

#[test]
fn a_line_has_the_promise_the_outcome_and_the_figure() {
    let honest = results(Cheats::default());
    let memory = line(&honest, "mps-50-50", 0, 0);
    assert_eq!(memory, "memory: soft, held: greedy got 63.1 GiB of 63.1 GiB");
    let compute = line(&honest, "mps-50-50", 0, 1);
    assert!(
        compute.starts_with("compute: soft, held: cap 50 %, seen 66 of 132 SMs, p99 1."),
        "{compute}"
    );
    assert!(
        compute.ends_with(") beside hog-sm") && compute.contains("x (1."),
        "{compute}"
    );
    let bandwidth = line(&honest, "mps-80-20", 0, 2);
    assert!(
        bandwidth.starts_with("bandwidth: none, nothing promised: requests 1.60x"),
        "{bandwidth}"
    );
    let faults = line(&honest, "mps2", 0, 3);
    assert_eq!(
        faults,
        "faults: none, nothing promised: ended 13.0 ms after the neighbour's fault"
    );
    assert_eq!(
        line(&honest, "mig-2", 0, 3),
        "faults: hard, held: went on after the neighbour's fault"
    );
    assert_eq!(
        line(&honest, "ts2", 0, 0),
        "memory: none, nothing promised: no limit, greedy got 139.6 GiB"
    );
}

#[test]
fn each_way_to_cheat_is_found() {
    let slow = |neighbour, by| Cheats {
        slow: Some((neighbour, by)),
        ..Cheats::default()
    };
    let of = |text: &str| text.split(", ").map(str::to_owned).collect::<BTreeSet<String>>();
    let both = |way: &str, what: &str| format!("{way} first {what}, {way} second {what}");
    let mps = |what: &str| {
        ["mps-50-50", "mps-80-20", "mig-mps"]
            .map(|way| both(way, what))
            .join(", ")
    };
    for (cheats, found) in [
        (
            Cheats {
                memory: true,
                ..Cheats::default()
            },
            format!("{}, mig-2 0:0 memory, mig-2 0:1 memory", mps("memory")),
        ),
        (
            Cheats {
                starves: true,
                ..Cheats::default()
            },
            format!("{}, mig-2 0:0 memory, mig-2 0:1 memory", mps("memory")),
        ),
        (
            Cheats {
                ceiling: true,
                ..Cheats::default()
            },
            mps("compute"),
        ),
        (
            Cheats {
                small_instance: true,
                ..Cheats::default()
            },
            "mig-2 0:0 compute, mig-2 0:1 compute, mig-mps first compute, mig-mps second compute".to_owned(),
        ),
        (
            slow(Neighbour::HogSm, 1.6),
            "mps-50-50 first compute, mps-80-20 first compute, mig-2 0:0 compute, mig-mps first compute".to_owned(),
        ),
        (slow(Neighbour::HogDram, 1.4), "mig-2 0:0 bandwidth".to_owned()),
        (slow(Neighbour::HogL2, 1.4), "mig-2 0:0 bandwidth".to_owned()),
        (
            Cheats {
                faults: true,
                ..Cheats::default()
            },
            "ts2 0 faults, mig-2 0:0 faults".to_owned(),
        ),
    ] {
        assert_eq!(with(&results(cheats), Outcome::NotHeld), of(&found), "{cheats:?}");
    }
}

#[test]
fn what_is_not_measured_is_not_said_to_hold() {
    for (left_out, guarantee) in [
        (Neighbour::Greedy, "mig-2 0:0 memory"),
        (Neighbour::HogSm, "mig-2 0:0 compute"),
        (Neighbour::HogDram, "mig-2 0:0 bandwidth"),
        (Neighbour::Fault, "mig-2 0:0 faults"),
        (Neighbour::Idle, "mig-2 0:0 bandwidth"),
    ] {
        let mut run = run(Cheats::default());
        run.cells.retain(|(cell, _)| cell.neighbour != left_out);
        let results = Results::new(run);
        let open = with(&results, Outcome::NotMeasured);
        assert!(open.contains(guarantee), "{left_out}: {open:?}");
        assert_eq!(with(&results, Outcome::NotHeld), [].into());
    }
    let mut run = run(Cheats::default());
    for (_, measured) in run
        .cells
        .iter_mut()
        .filter(|(cell, _)| cell.neighbour == Neighbour::Fault)
    {
        // The neighbour ended without a fault.
        measured
            .as_mut()
            .unwrap()
            .iter_mut()
            .for_each(|one| one.has_faulted = false);
    }
    for (_, measured) in run
        .cells
        .iter_mut()
        .filter(|(cell, _)| cell.neighbour == Neighbour::Greedy)
    {
        *measured = Err("interrupted".into());
    }
    run.ways.iter_mut().for_each(|way| way.sms.clear());
    let open = with(&Results::new(run), Outcome::NotMeasured);
    assert!(
        open.contains("mps-80-20 second compute") && open.contains("mig-2 0:0 faults"),
        "{open:?}"
    );
}

#[test]
fn a_throttled_cell_is_marked() {
    let throttled = results(Cheats {
        throttled: true,
        ..Cheats::default()
    });
    assert!(line(&throttled, "mig-2", 0, 2).ends_with(", throttled"));
    assert!(!line(&results(Cheats::default()), "mig-2", 0, 2).contains("throttled"));
}
