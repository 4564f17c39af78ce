//! Layouts that are applied, undone and made again.

use crate::bed::Bed;
use serde_json::Value;
use std::fs;

#[test]
fn a_layout_is_planned_applied_and_undone() {
    let bed = Bed::new("dgx-a100-mig");
    let layout = ["--layout", "0:3g.20gb,1g.5gb", "--layout", "3:2x1c.3g.20gb,2g.10gb"];
    let before = bed.layouts();
    let plan = bed.tranche(&[&["mig", "plan"][..], &layout].concat());
    assert_eq!(plan.code, Some(4), "{plan:?}");
    let lines: Vec<&str> = plan.out.lines().collect();
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.starts_with("gpu 0: destroy 1g.5gb at "))
            .count(),
        6
    );
    assert_eq!(
        lines[6..],
        [
            "gpu 0: create 3g.20gb at 4",
            "gpu 3: create 2g.10gb at 0",
            "gpu 3: create 3g.20gb at 4 with compute instances of 1 + 1 slices",
        ]
    );
    assert_eq!(bed.layouts(), before);
    let applied = bed.tranche(&[&["mig", "apply", "--yes"][..], &layout].concat());
    assert_eq!((applied.code, &applied.out), (Some(0), &plan.out), "{applied:?}");
    assert_eq!(bed.layout(0), "1g.5gb@0,3g.20gb@4");
    assert_eq!(bed.layout(3), "2g.10gb@0,2x1c.3g.20gb@4");
    // Other GPUs are as they were.
    assert_eq!(bed.layouts()[1..3], before[1..3]);
    let again = bed.tranche(&[&["mig", "plan"][..], &layout].concat());
    assert_eq!((again.code, again.out.as_str()), (Some(0), "nothing to do\n"));
    // The specifications describe it already, with the nodes of the new instances.
    let specification = fs::read_to_string(bed.at("cdi/tranche.yaml")).unwrap();
    assert!(
        specification.contains("name: \"0:1\"") || specification.contains("name: 0:1"),
        "{specification}"
    );
    let host: Value = serde_json::from_slice(&fs::read(bed.at("state/host.json")).unwrap()).unwrap();
    let gpus = host["inventory"]["gpus"].as_array().unwrap();
    assert_eq!(gpus[0]["mig_devices"].as_array().unwrap().len(), 2);
    let undone = bed.tranche(&["mig", "undo", "--yes"]);
    assert_eq!(undone.code, Some(0), "{undone:?}");
    assert_eq!(bed.layouts(), before);
    assert!(
        undone.err.contains("nvidia.com/gpu=3:0 is no device any more"),
        "{undone:?}"
    );
    assert!(
        undone.err.contains("nvidia.com/gpu=0:1 is another device now"),
        "{undone:?}"
    );
    // Undone twice is done again.
    assert_eq!(bed.tranche(&["mig", "undo", "--yes"]).code, Some(0));
    assert_eq!(bed.layout(0), "1g.5gb@0,3g.20gb@4");
}

#[test]
fn what_is_not_in_the_layout_is_not_touched() {
    let bed = Bed::new("dgx-a100-mig");
    let uuid = |bed: &Bed| {
        let status: Value = serde_json::from_str(&bed.tranche(&["mig", "status", "--json"]).out).unwrap();
        let devices = status[0]["instances"].as_array().unwrap().iter();
        devices
            .map(|one| one["devices"][0]["uuid"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let before = uuid(&bed);
    bed.apply("0:1g.5gb@2,1g.5gb@3");
    assert_eq!(uuid(&bed), before[2..4]);
}

#[test]
fn layouts_are_made_again_after_a_boot() {
    let mut bed = Bed::new("dgx-a100-mig");
    bed.apply("0:3g.20gb,1g.5gb");
    let made = bed.layout(0);
    bed.end(nix::sys::signal::Signal::SIGTERM);
    // A boot leaves no instance, and nothing of the state directory but what is kept.
    let kept = fs::read(bed.at("state/kept/mig-layout.json")).unwrap();
    fs::remove_dir_all(bed.at("state")).unwrap();
    fs::create_dir_all(bed.at("state/kept")).unwrap();
    fs::write(bed.at("state/kept/mig-layout.json"), kept).unwrap();
    bed.lose_instances();
    assert_eq!(bed.layout(0), "empty");
    bed.start();
    let restored = bed.tranche(&["mig", "restore"]);
    assert_eq!(restored.code, Some(0), "{restored:?}");
    assert_eq!(bed.layout(0), made);
    // At the next boot there is nothing to do.
    assert_eq!(bed.tranche(&["mig", "restore"]).code, Some(0));
    assert_eq!(bed.layout(0), made);
}

#[test]
fn a_machine_without_saved_layouts_has_nothing_to_make_again() {
    let bed = Bed::without_broker("dgx-a100-mig");
    let before = bed.layouts();
    // Neither the broker nor the driver is asked.
    let said = bed.tranche(&["mig", "restore"]);
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""));
    assert_eq!(bed.layouts(), before);
    let undo = bed.tranche(&["mig", "undo", "--yes"]);
    assert_eq!(
        (undo.code, undo.err.contains("has changed no layout")),
        (Some(3), true),
        "{undo:?}"
    );
}

#[test]
fn shares_of_the_policy_exist_on_new_instances() {
    let bed = Bed::new("dgx-a100-mig");
    bed.policy(
        "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {name: nvidia.com/mig-3g.20gb, replicas: 4}\n",
    );
    bed.apply("3:3g.20gb,2g.10gb");
    let text = fs::read_to_string(bed.at("cdi/tranche.yaml")).unwrap();
    for share in ["3:1.0", "3:1.3"] {
        assert!(
            text.contains(&format!("{share}\"")) || text.contains(&format!("name: {share}\n")),
            "{share}"
        );
    }
    assert!(!text.contains("3:0.0"), "{text}");
}

#[test]
fn a_file_of_mig_parted_is_applied() {
    let bed = Bed::new("dgx-a100-mig");
    let text = "version: v1\nmig-configs:\n  small:\n  - {devices: [3, 4], mig-enabled: true, mig-devices: {1g.5gb: 7}}\n  \
                large:\n  - {devices: [4], mig-enabled: true, mig-devices: {7g.40gb: 1}}\n";
    let file = bed.at("config.yaml");
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let several = bed.tranche(&["mig", "plan", "-f", file]);
    assert_eq!(several.code, Some(2));
    assert!(
        several
            .err
            .contains("has several configurations; select one of large, small"),
        "{several:?}"
    );
    assert_eq!(bed.tranche(&["mig", "plan", "-f", file, "-c", "large"]).code, Some(0));
    let applied = bed.tranche(&["mig", "apply", "--yes", "-f", file, "-c", "small"]);
    assert_eq!(applied.code, Some(0), "{applied:?}");
    for gpu in [3, 4] {
        assert_eq!(bed.layout(gpu).matches("1g.5gb@").count(), 7);
    }
    let missing = bed.tranche(&["mig", "plan", "-f", "/nonexistent"]);
    assert_eq!(
        (missing.code, missing.err.contains("/nonexistent: cannot be read")),
        (Some(2), true),
        "{missing:?}"
    );
}

#[test]
fn a_restore_that_fails_is_a_result_of_doctor() {
    let mut bed = Bed::without_broker("dgx-a100-mig");
    bed.start();
    bed.apply("0:3g.20gb@4");
    bed.apply("3:2g.10gb@0");
    bed.end(nix::sys::signal::Signal::SIGTERM);
    bed.lose_instances();
    let refuse = |bed: &mut Bed, errors: Value| bed.host.nvml(|config| config["gpus"][3]["errors"] = errors).unwrap();
    refuse(
        &mut bed,
        serde_json::json!({"nvmlDeviceCreateGpuInstanceWithPlacement": "TIMEOUT"}),
    );
    bed.start();
    let restored = bed.tranche(&["mig", "restore"]);
    assert_eq!(restored.code, Some(1), "{restored:?}");
    // The other GPU has its layout, and the specifications describe what there is.
    assert_eq!((bed.layout(0).as_str(), bed.layout(3).as_str()), ("3g.20gb@4", "empty"));
    let specification = fs::read_to_string(bed.at("cdi/tranche.yaml")).unwrap();
    assert!(
        specification.contains("0:0") && !specification.contains("3:0"),
        "{specification}"
    );
    let results = |bed: &Bed| {
        let said = bed.tranche(&["doctor", "--json"]);
        let said: Value = serde_json::from_str(&said.out).unwrap();
        let checks = said["checks"].as_array().unwrap().clone();
        checks
            .into_iter()
            .filter(|one| one["finding"] == "mig-not-restored")
            .collect::<Vec<_>>()
    };
    let found = results(&bed);
    assert_eq!(found.len(), 1, "{found:?}");
    let text = found[0]["found"].as_str().unwrap();
    assert!(
        text.contains("tranche-mig.service: ") && text.contains("cannot create 2g.10gb at 0+2"),
        "{found:?}"
    );
    assert!(
        found[0]["fix"].as_str().unwrap().ends_with("tranche mig restore"),
        "{found:?}"
    );
    // It is over with what doctor says, and also with another layout.
    let kept = fs::read(bed.at("state/mig-restore.json")).unwrap();
    refuse(&mut bed, serde_json::json!({}));
    bed.end(nix::sys::signal::Signal::SIGTERM);
    bed.start();
    assert_eq!(bed.tranche(&["mig", "restore"]).code, Some(0));
    assert_eq!(bed.layout(3), "2g.10gb@0");
    assert_eq!(results(&bed), Vec::<Value>::new());
    fs::write(bed.at("state/mig-restore.json"), kept).unwrap();
    assert_eq!(results(&bed).len(), 1);
    bed.apply("3:1g.5gb");
    assert_eq!(results(&bed), Vec::<Value>::new());
}
