//! NVML missing, hanging, crashing, silent or lying.

use super::*;

#[test]
fn a_library_that_hangs_costs_the_time_that_it_may_be_silent() {
    let bed = bed(SMALL);
    bed.faults(serde_json::json!({"init": "hang"}));
    let begin = Instant::now();
    let inventory = bed.look_with(&DiscoveryOptions {
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

/// nvml-wrapper reads a string up to its first NUL byte. If the library writes none into the buffer, it reads beyond
/// the buffer: it may crash there, which the child process contains, or return more than the buffer holds, which is
/// refused. Either way nothing of it may come into the inventory.
#[test]
fn strings_without_an_end_and_strings_of_nonsense() {
    let healthy = bed("dgx-a100-mig").look();
    for (strings, why) in [
        ("unterminated", "does not end within its buffer"),
        ("garbage", "is not valid UTF-8"),
    ] {
        let bed = bed("dgx-a100-mig");
        bed.faults(serde_json::json!({"strings": strings}));
        let inventory = bed.look();
        let told = warnings(&inventory);
        for what in ["UUID", "name"] {
            let line = format!("gpu 0: NVML does not report its {what}: the string {why}");
            assert!(told.contains(&line), "{strings}: {line} not in {told:#?}");
        }
        // Numbers and addresses are right, and /proc has the UUIDs and names of GPUs.
        assert_eq!(inventory.gpus.len(), 8, "{strings}: {told:#?}");
        for (gpu, right) in inventory.gpus.iter().zip(&healthy.gpus) {
            assert_eq!(
                (&gpu.uuid, &gpu.name, gpu.pci),
                (&right.uuid, &right.name, right.pci),
                "{strings}"
            );
        }
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
fn a_pci_address_without_an_end_is_taken_from_proc() {
    let bed = bed(SMALL);
    let healthy = bed.look();
    bed.faults(serde_json::json!({"strings": "unterminated-address"}));
    let inventory = bed.look();
    assert_eq!(inventory.gpus, healthy.gpus);
    let told = warnings(&inventory);
    // What follows the buffer decides whether the string is too long or not valid UTF-8.
    let line = "gpu 1: NVML does not report its PCI address: the string ";
    assert!(told.iter().any(|w| w.starts_with(line)), "{told:#?}");
}

/// A number that this program has no name for is a fact that it does not know, and no fault of the library.
#[test]
fn an_architecture_that_is_newer_than_this_program_is_unknown() {
    let bed = bed(SMALL);
    bed.host
        .nvml(|config| config["gpus"][0]["architecture"] = "11".into())
        .unwrap();
    let inventory = bed.look();
    assert_eq!(warnings(&inventory), [""; 0]);
    let told: Vec<_> = inventory.gpus.iter().map(|gpu| gpu.architecture).collect();
    assert_eq!(told, [None, Some(Architecture::Turing)]);
}

/// nvml-wrapper has no names for NVML's newer error codes, and reports them as it reports an unknown value.
#[test]
fn an_error_code_that_is_newer_than_the_wrapper_is_an_error() {
    let bed = bed(SMALL);
    bed.faults(serde_json::json!({"errors": {"nvmlDeviceGetArchitecture": "27"}}));
    let told = warnings(&bed.look());
    let line = "gpu 0: NVML does not report its architecture: the GPU is not ready";
    assert!(told.iter().any(|w| w == line), "{told:#?}");
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
        .flat_map(|a| a.what.iter().map(String::as_str))
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
    if !support::rights::owns_machine("broken_nvml::library_and_module_of_different_versions") {
        return;
    }
    for (module, what) in [("450.80.02", "older"), ("470.1.1", "newer")] {
        let bed = bed(SMALL);
        let text = format!("NVRM version: NVIDIA UNIX x86_64 Kernel Module  {module}  Wed Sep 23 01:13:39 UTC 2020\n");
        fs::write(bed.host.path("/proc/driver/nvidia/version"), text).unwrap();
        let inventory = bed.look();
        let driver = inventory.driver.as_ref().unwrap();
        assert_eq!(driver.version.as_str(), module);
        assert!(has_file(&inventory, "libcuda.so.555.58.02"), "{what}");
        for line in warnings(&inventory) {
            assert!(
                line.contains(module) && line.contains("555.58.02") && line.contains("reboot"),
                "{what}: {line}"
            );
        }
        assert_eq!(inventory.warnings.len(), 2, "{what}: {:?}", warnings(&inventory));
    }
}
