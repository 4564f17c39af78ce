//! What is answered of a layout, and what there is, whatever write is the first that the disk refuses.
//! `TRANCHE_TEST_EVERY_WRITE=1` lets each write of each disk be the first.

use crate::bed::{Bed, Said};
use crate::support::failing_disk::{FailingDisk, Failure};
use crate::support::{sample, skip};
use serde_json::Value;
use std::fs;
use std::process::Stdio;

fn bed(test: &str) -> Option<(Bed, FailingDisk)> {
    let disk = FailingDisk::default();
    let mut bed = Bed::without_broker("dgx-a100-mig");
    if let Err(error) = bed.start_on(&disk) {
        skip::not_run(
            &format!("mig::failing_disks::{test}"),
            &format!("no seccomp listener: {error}"),
        );
        return None;
    }
    bed.apply("0:empty");
    Some((bed, disk))
}

/// A command of root, whose own writes are on the disk too.
fn ask(bed: &Bed, disk: &FailingDisk, arguments: &[&str]) -> Said {
    let mut command = bed.command(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    disk.spawn(&mut command).unwrap().wait_with_output().unwrap().into()
}

/// The layout of GPU 0 that a boot makes again.
fn saved(bed: &Bed) -> String {
    let text = fs::read_to_string(bed.at("state/kept/mig-layout.json")).unwrap();
    let saved: Value = serde_json::from_str(&text).unwrap();
    let gpus = saved["gpus"].as_array().unwrap();
    let uuid = bed.uuid(0);
    let found = gpus.iter().find(|gpu| gpu["layout"]["gpu"] == uuid.as_str());
    found
        .map(|gpu| gpu["layout"]["instances"].to_string())
        .unwrap_or_default()
}

/// Calls `each` with a text for people that says how the disk fails meanwhile. `each` returns whether a write failed.
fn failures(bed: &Bed, disk: &FailingDisk, each: &mut dyn FnMut(&str) -> bool) {
    let [state, kept, cdi] = ["state", "state/kept", "cdi"].map(|name| bed.at(name));
    let every = std::env::var_os("TRANCHE_TEST_EVERY_WRITE").is_some();
    let disks = [
        ("all", vec![state.clone(), cdi.clone()], Vec::new()),
        ("run", vec![state], vec![kept.clone()]),
        ("persistent", vec![kept], Vec::new()),
        ("specifications", vec![cdi], Vec::new()),
    ];
    // The first write of a change, and every one of so many.
    let stride = if every { 1 } else { sample::number(12, 4) };
    for failure in Failure::ALL {
        for (which, tops, except) in &disks[..if every { 4 } else { 1 }] {
            for spared in (0..).step_by(stride) {
                disk.fail(failure, tops, except, spared);
                let at = format!("{which} is {failure:?} after {spared} writes");
                if !each(&at) {
                    break;
                }
            }
        }
    }
}

#[test]
fn what_is_answered_of_a_layout_is_what_there_is() {
    let Some((bed, disk)) = bed("what_is_answered_of_a_layout_is_what_there_is") else {
        return;
    };
    let (one, other) = ("0:3g.20gb,3g.20gb", "0:empty");
    let apply = |layout: &str| ask(&bed, &disk, &["mig", "apply", "--yes", "--layout", layout]);
    let there = || (bed.layout(0), saved(&bed));
    assert_eq!(apply(one).code, Some(0));
    let done = there();
    assert_eq!(apply(other).code, Some(0));
    let before = there();
    assert_ne!(before, done);
    let (mut refused, mut wrong) = (0, Vec::new());
    failures(&bed, &disk, &mut |at| {
        let said = apply(one);
        let failed = disk.mend();
        // It is written down that the change is not finished, and the next one finishes it.
        let is_unfinished = bed.at("state/mig-change.json").exists();
        let found = there();
        refused += usize::from(said.code != Some(0));
        let is = match said.code {
            Some(0) => found == done,
            // What the driver has, and what a boot makes, are not two things.
            _ => found == before || found == done || is_unfinished,
        };
        if !is {
            wrong.push(format!("{at} ({failed:?}): {said:?}\n  {found:?}"));
        }
        let again = bed.tranche(&["mig", "apply", "--yes", "--layout", one]);
        if again.code != Some(0) || there() != done {
            wrong.push(format!("{at}: again: {again:?}\n  {:?}", there()));
        }
        bed.apply(other);
        if there() != before {
            wrong.push(format!("{at}: undone: {:?}", there()));
        }
        !failed.is_empty()
    });
    println!("refused {refused} times, {} times wrong", wrong.len());
    assert!(refused > 0 && wrong.is_empty(), "{}", wrong.join("\n"));
}
