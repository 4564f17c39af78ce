//! What is refused, in one line, with nothing changed.

use crate::bed::Bed;
use serde_json::json;
use std::fs;

fn refused(bed: &Bed, arguments: &[&str], code: i32, expected: &str) {
    let before = bed.layouts();
    let said = bed.tranche(arguments);
    assert_eq!(said.code, Some(code), "{said:?}");
    let last = said.err.lines().last().unwrap_or_default();
    assert!(last.contains(expected), "{said:?}");
    assert_eq!(bed.layouts(), before);
}

#[test]
fn bad_layouts_change_nothing() {
    let bed = Bed::new("dgx-a100-mig");
    for (layout, expected) in [
        (
            "0:9g.90gb",
            "gpu 0: has no profile 9g.90gb; NVIDIA A100-SXM4-40GB has 2g.10gb, ",
        ),
        ("0:8x1g.5gb", "gpu 0: cannot have 8x1g.5gb at once; it can have at most"),
        (
            "3:3g.20gb@1",
            "gpu 3: no 3g.20gb can begin at 1; its places are 3g.20gb@0, 3g.20gb@4",
        ),
        (
            "12:1g.5gb",
            "names no GPU with MIG of this machine; expected all or one of 0",
        ),
        (
            "GPU-00000000-0000-4000-8000-000000000000:1g.5gb",
            "names no GPU with MIG",
        ),
    ] {
        refused(&bed, &["mig", "apply", "--yes", "--layout", layout], 2, expected);
    }
    refused(
        &bed,
        &["mig", "apply", "--layout", "0:1g.5gb"],
        2,
        "is not a terminal, so nobody can be asked; give --yes",
    );
}

#[test]
fn who_is_in_the_way_is_named() {
    let mut bed = Bed::without_broker("dgx-a100-mig");
    bed.host
        .nvml(|config| {
            let process =
                json!({"pid": std::process::id(), "kind": "compute", "gpu_instance": 8, "compute_instance": 0});
            config["gpus"][0]["processes"] = json!([process]);
        })
        .unwrap();
    bed.start();
    let pid = format!("(pid {})", std::process::id());
    refused(
        &bed,
        &["mig", "apply", "--yes", "--layout", "0:7g.40gb"],
        1,
        "stands in the way of the layout",
    );
    let said = bed.tranche(&["mig", "plan", "--layout", "0:7g.40gb"]);
    assert!(said.err.contains(&pid), "{said:?}");
    let status = bed.tranche(&["mig", "status"]);
    assert!(
        status
            .out
            .lines()
            .any(|line| line.starts_with("0:1 ") && line.contains(&pid)),
        "{status:?}"
    );
    // A layout that keeps that instance is applied beside it.
    bed.apply("0:1g.5gb,3g.20gb");
    assert_eq!(bed.layout(0), "1g.5gb@1,3g.20gb@4");
}

#[test]
fn a_claim_keeps_its_instance() {
    let bed = Bed::new("dgx-a100-mig");
    bed.policy("version: v1\nsharing:\n  dedicated:\n    devices: [\"0:0\", \"0:1\"]\n");
    let made = bed.tranche(&["claim", "create", "--name", "train", "--device", "0:1"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    refused(
        &bed,
        &["mig", "apply", "--yes", "--layout", "0:7g.40gb"],
        1,
        "claim train stands in the way",
    );
    bed.apply("0:1g.5gb");
    assert_eq!(bed.layout(0), "1g.5gb@1");
}

#[test]
fn a_reservation_keeps_its_instance() {
    let bed = Bed::new("dgx-a100-mig");
    bed.policy("version: v1\nsharing:\n  dedicated:\n    devices: [\"0:0\", \"0:1\"]\n");
    let made = bed.tranche(&["reserve", "0:1", "--from=tomorrow 14:00", "--for=2h"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    let planned = bed.tranche(&["mig", "plan", "--layout", "0:7g.40gb"]);
    assert!(
        planned.err.contains("reservation 1 of root stands in the way"),
        "{planned:?}"
    );
    refused(
        &bed,
        &["mig", "apply", "--yes", "--layout", "0:7g.40gb"],
        1,
        "reservation 1 of root stands in the way",
    );
    bed.apply("0:1g.5gb");
    assert_eq!(bed.layout(0), "1g.5gb@1");
    let cancelled = bed.tranche(&["reserve", "cancel", "1"]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    bed.apply("0:7g.40gb");
}

#[test]
fn a_driver_that_refuses_in_the_middle_leaves_what_there_was() {
    let mut bed = Bed::without_broker("dgx-a100-mig");
    bed.host
        .nvml(|config| {
            let errors = json!({"nvmlDeviceCreateGpuInstanceWithPlacement": "TIMEOUT"});
            config["gpus"][3]["errors"] = errors;
        })
        .unwrap();
    bed.start();
    refused(
        &bed,
        &["mig", "apply", "--yes", "--layout", "3:1g.5gb"],
        1,
        "cannot create 1g.5gb at 6+1: NVML says: ",
    );
    let journal = bed.at("state/mig-change.json");
    assert!(
        !journal.exists(),
        "{}",
        fs::read_to_string(&journal).unwrap_or_default()
    );
}

#[test]
fn gpus_of_virtual_machines_are_refused() {
    for (mode, expected) in [
        ("host-vgpu", "gpu 0: is divided among virtual machines"),
        ("passthrough", "gpu 0: was passed to this virtual machine"),
    ] {
        let mut bed = Bed::without_broker("hgx-h200");
        bed.host
            .nvml(|config| config["gpus"][0]["virtualization"] = mode.into())
            .unwrap();
        bed.start();
        refused(
            &bed,
            &["mig", "apply", "--yes", "--mode", "--layout", "0:1g.18gb"],
            1,
            expected,
        );
    }
}

/// Another client than `tranche mig apply`, which looks at the policy itself.
#[test]
fn the_broker_refuses_what_contradicts_the_policy() {
    let bed = Bed::new("dgx-a100-mig");
    bed.policy("version: v1\nmig:\n  layout:\n  - 0:3g.20gb,1g.5gb\n");
    let before = bed.layouts();
    let refused = bed
        .ask(&json!({"command": "mig", "layouts": ["0:7g.40gb"]}))
        .unwrap_err();
    assert!(
        refused.contains("gives it 1g.5gb,3g.20gb, and not 7g.40gb"),
        "{refused}"
    );
    // In MIG mode it is what the policy says.
    let refused = bed
        .ask(&json!({"command": "mig", "layouts": ["0:off"], "check": "modes", "may_change_mode": true}))
        .unwrap_err();
    assert!(refused.contains("gives it 1g.5gb,3g.20gb, and not off"), "{refused}");
    assert_eq!(bed.layouts(), before);
    bed.ask(&json!({"command": "mig", "layouts": ["0:empty"], "check": "modes"}))
        .unwrap();
    assert_eq!(bed.layout(0), "empty");
}

#[test]
fn what_has_changed_since_the_plan_is_not_destroyed() {
    let bed = Bed::new("dgx-a100-mig");
    let refused = bed.ask(&json!({"command": "mig", "layouts": ["0:7g.40gb"], "seen": ["0:empty"]}));
    let refused = refused.unwrap_err();
    assert!(
        refused.contains("the instances have changed since the plan was made"),
        "{refused}"
    );
    assert_eq!(bed.layout(0).matches("1g.5gb").count(), 7);
}

#[test]
fn of_two_applies_at_once_one_is_made_whole() {
    let bed = Bed::new("dgx-a100-mig");
    let layouts = ["1g.5gb@0,2g.10gb@4", "3g.20gb@0,3g.20gb@4"];
    let said = bed.apply_at_once(layouts);
    let made = said.iter().filter(|one| one.code == Some(0)).count();
    assert!(made > 0, "{said:?}");
    // The other one came later and was made as well, or has seen the first one at work, or what is no more.
    for refused in said.iter().filter(|one| one.code != Some(0)) {
        let errors: Vec<&str> = refused
            .err
            .lines()
            .filter(|line| line.starts_with("tranche: "))
            .collect();
        assert_eq!(errors.len(), 1, "{said:?}");
        let is_known = [
            "the instances have changed since the plan was made",
            "program tranche mig stands in the way of the layout",
        ]
        .iter()
        .any(|known| errors[0].contains(known));
        assert!(is_known, "{said:?}");
    }
    let now = bed.layout(0);
    assert!(layouts.contains(&now.as_str()), "{now}");
    assert!(!bed.at("state/mig-change.json").exists());
}

#[test]
fn a_layout_file_of_a_future_version_changes_nothing() {
    let bed = Bed::new("dgx-a100-mig");
    let file = bed.at("config.yaml");
    fs::write(
        &file,
        "version: v2\nmig-configs:\n  all: [{devices: all, mig-enabled: false}]\n",
    )
    .unwrap();
    refused(
        &bed,
        &["mig", "apply", "--yes", "-f", file.to_str().unwrap()],
        2,
        "version",
    );
}
