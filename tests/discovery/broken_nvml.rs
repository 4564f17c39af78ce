//! NVML missing, hanging, crashing, silent or lying.

use super::*;

#[test]
fn a_library_that_hangs_costs_the_time_that_it_may_be_silent() {
    let bed = bed(SMALL);
    bed.faults(serde_json::json!({"init": "hang"}));
    let begin = Instant::now();
    let inventory = bed.look_with(&Options {
        deadline: Duration::from_millis(700),
        ..options()
    });
    assert!(begin.elapsed() >= Duration::from_millis(700));
    assert!(
        one_warning(&inventory).contains("no answer in nvmlInit for 0.7 s"),
        "{:?}",
        warnings(&inventory)
    );
    assert_eq!((inventory.source, inventory.gpus.len()), (Source::Proc, 2));
}

#[test]
fn a_library_that_crashes_costs_a_line() {
    let bed = bed(SMALL);
    bed.faults(serde_json::json!({"init": "crash"}));
    let inventory = bed.look();
    assert!(
        one_warning(&inventory).contains("crashed in nvmlInit (SIGSEGV)"),
        "{:?}",
        warnings(&inventory)
    );
    assert_eq!((inventory.source, inventory.gpus.len()), (Source::Proc, 2));
}

#[test]
fn a_library_that_refuses_says_why() {
    let bed = bed(SMALL);
    bed.faults(serde_json::json!({"init": "18"}));
    let inventory = bed.look();
    assert!(
        one_warning(&inventory).contains("different versions; reboot"),
        "{:?}",
        warnings(&inventory)
    );
    assert_eq!(inventory.gpus.len(), 2);
}

#[test]
fn strings_without_an_end_and_strings_of_nonsense() {
    for strings in ["unterminated", "garbage"] {
        let bed = bed("dgx-a100-mig");
        bed.faults(serde_json::json!({"strings": strings}));
        let inventory = bed.look();
        // Numbers are right, and /proc knows UUIDs, names and addresses; which GPU is which tells the minor alone then.
        assert!(!inventory.warnings.is_empty(), "{strings}");
        for gpu in &inventory.gpus {
            assert!(gpu.name.chars().all(|c| !c.is_control()), "{strings}: {:?}", gpu.name);
        }
        assert_eq!(inventory.gpus.len(), 8, "{strings}: {:#?}", warnings(&inventory));
        assert!(
            inventory
                .mig_devices()
                .all(|(_, m)| m.uuid.is_none() && m.profile.is_none()),
            "{strings}"
        );
        assert!(load("x", &serde_json::to_string(&inventory).unwrap()).is_ok());
    }
}

#[test]
fn functions_that_are_missing_cost_their_answer() {
    let bed = bed("dgx-a100-mig");
    bed.host
        .nvml(|config| {
            config["missing_symbols"] = serde_json::json!([
                "nvmlDeviceGetName",
                "nvmlDeviceGetComputeMode",
                "nvmlDeviceGetMinorNumber"
            ]);
        })
        .unwrap();
    let inventory = bed.look();
    assert_eq!(warnings(&inventory), [""; 0]);
    assert_eq!(inventory.gpus.len(), 8);
    assert!(
        inventory
            .gpus
            .iter()
            .all(|g| g.compute_mode.is_none() && g.memory.is_some())
    );
    // /proc has the name and the minor.
    assert_eq!(inventory.gpus[0].name, "NVIDIA A100-SXM4-40GB");
    let absent: Vec<&str> = inventory
        .absent
        .iter()
        .map(|a| a.what.as_str())
        .filter(|w| w.ends_with("()"))
        .collect();
    assert!(absent.contains(&"nvmlDeviceGetComputeMode()"), "{absent:?}");
}

#[test]
fn a_lost_gpu_leaves_the_others() {
    let inventory = bed("l4-one-lost").look();
    let left: Vec<u32> = inventory.gpus.iter().map(|g| g.index.0).collect();
    assert_eq!(left, [0, 1, 3]);
    assert!(one_warning(&inventory).starts_with("gpu 2: does not answer and is left out"));
    // Its node is there for who looks after the machine.
    if inventory.gpus[0].node.as_ref().unwrap().present {
        let orphans: Vec<u32> = inventory.nodes.orphans.iter().map(|n| n.minor).collect();
        assert_eq!(orphans, [2]);
    }
}

#[test]
fn a_gpu_that_falls_off_halfway() {
    let bed = bed("hgx-h200");
    bed.host
        .nvml(|config| config["gpus"][5]["lost_after"] = 4.into())
        .unwrap();
    let inventory = bed.look();
    let left: Vec<u32> = inventory.gpus.iter().map(|g| g.index.0).collect();
    assert_eq!(left, [0, 1, 2, 3, 4, 6, 7]);
    assert!(
        warnings(&inventory).iter().any(|w| w.starts_with("gpu 5: ")),
        "{:?}",
        warnings(&inventory)
    );
}

#[test]
fn library_and_module_of_different_versions() {
    for (module, what) in [("450.80.02", "older"), ("470.1.1", "newer")] {
        let bed = bed(SMALL);
        let text = format!("NVRM version: NVIDIA UNIX x86_64 Kernel Module  {module}  Wed Sep 23 01:13:39 UTC 2020\n");
        fs::write(bed.host.path("/proc/driver/nvidia/version"), text).unwrap();
        let inventory = bed.look();
        let driver = inventory.driver.as_ref().unwrap();
        assert_eq!(driver.version.as_str(), module);
        assert!(has_file(&inventory, "libcuda.so.450.248.02"), "{what}");
        for line in warnings(&inventory) {
            assert!(
                line.contains(module) && line.contains("450.248.02") && line.contains("reboot"),
                "{what}: {line}"
            );
        }
        assert_eq!(inventory.warnings.len(), 2, "{what}: {:?}", warnings(&inventory));
    }
}
