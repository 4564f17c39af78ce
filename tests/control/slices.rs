//! The length of a turn: set for the first claim, put back after the last one.

use crate::bed::Bed;
use serde_json::json;
use std::fs;
use tranche_broker::control::MachineControl;

const LONG: &str = "version: v1
sharing:
  timeSlicing:
    interval: long
    resources:
      - {name: nvidia.com/gpu, replicas: 2}
";

#[test]
fn it_is_set_for_the_first_claim_and_put_back_after_the_last_one() {
    let bed = Bed::new(LONG);
    let uuid = bed.uuid();
    // It was short before.
    fs::write(bed.host.root.join("time-slices.json"), json!({&uuid: 1}).to_string()).unwrap();
    let control = bed.control();
    bed.start(&control, "0");
    bed.start(&control, "1");
    let list = format!("nvidia-smi compute-policy -i {uuid} --list");
    let set = |number: u32| format!("nvidia-smi compute-policy -i {uuid} --set-timeslice={number}");
    assert_eq!(bed.fake.lines(), [list.clone(), set(3)]);
    let device = bed.device(&control);
    assert_eq!((device.time_slice.as_deref(), device.daemon), (Some("long"), None));
    bed.stop("0");
    assert!(control.tick().is_some());
    assert_eq!(bed.fake.lines().len(), 2);
    // Another broker goes on.
    let control = bed.control();
    assert!(control.tick().is_some());
    bed.stop("1");
    assert_eq!(control.tick(), None);
    assert_eq!(bed.fake.lines(), [list.clone(), set(3), list, set(1)]);
    bed.assert_as_it_was(&control);
}

#[test]
fn one_that_another_program_sets_meanwhile_stays() {
    let bed = Bed::new(LONG);
    let uuid = bed.uuid();
    let control = bed.control();
    bed.start(&control, "0");
    let file = bed.host.root.join("time-slices.json");
    fs::write(&file, json!({&uuid: 2}).to_string()).unwrap();
    bed.stop("0");
    assert_eq!(control.tick(), None);
    let set: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(set[&uuid], 2);
    bed.assert_as_it_was(&control);
}

#[test]
fn one_that_cannot_be_asked_is_put_back_to_the_default_and_one_that_cannot_be_set_is_refused() {
    let bed = Bed::new(LONG);
    let uuid = bed.uuid();
    let control = bed.control();
    bed.fake.set_faults(json!({"policy": "garbage"}));
    bed.start(&control, "0");
    let remark = "the length of a turn could not be asked; it is put back to the driver's default";
    assert_eq!(bed.device(&control).problems, [remark]);
    bed.stop("0");
    assert_eq!(control.tick(), None);
    let last = bed.fake.lines().pop().unwrap();
    assert_eq!(last, format!("nvidia-smi compute-policy -i {uuid} --set-timeslice=0"));
    bed.fake.set_faults(json!({"policy": "refuse"}));
    let refused = bed.refused(&control, "0");
    let expected =
        "gpu 0: the length of a turn cannot be set: Unable to set timeslice: Insufficient Permissions (exit code 4)";
    assert_eq!(refused, expected);
    bed.fake.set_faults(json!({}));
    assert_eq!(control.tick(), None);
    bed.assert_as_it_was(&control);
}
