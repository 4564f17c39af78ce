//! Without NVML a name still means the same device as with it, or there is no such name.

use super::*;
use std::collections::{BTreeMap, BTreeSet};

fn without(bed: &Bed) -> Inventory {
    bed.look_with(&DiscoveryOptions {
        nvml: false,
        ..options()
    })
}

/// The devices of the specification of a host, by name, each with its nodes.
fn devices(bed: &Bed, more: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let root = bed.host.root.to_str().unwrap();
    let (code, out, err) = tranche(
        &[
            &["cdi", "generate", "--format=json", "--no-hooks", "--root", root],
            more,
        ]
        .concat(),
    );
    assert_eq!(code, Some(0), "{err}");
    let spec: serde_json::Value = serde_json::from_str(&out).unwrap();
    let nodes = |device: &serde_json::Value| -> BTreeSet<String> {
        let nodes = device["containerEdits"]["deviceNodes"].as_array();
        nodes
            .into_iter()
            .flatten()
            .map(|n| n["path"].as_str().unwrap().to_owned())
            .collect()
    };
    let devices = spec["devices"].as_array().unwrap().iter();
    devices
        .map(|d| (d["name"].as_str().unwrap().to_owned(), nodes(d)))
        .collect()
}

/// Whatever has a name without NVML is the same device with it.
#[test]
fn a_name_means_the_same_device_with_nvml_and_without() {
    for host in ["dgx-a100-mig", "minors-reordered", "hgx-h200", SMALL] {
        let bed = bed(host);
        if !bed.host.not_made.is_empty() {
            return skip::not_run(
                "a_name_means_the_same_device_with_nvml_and_without",
                "device nodes need root",
            );
        }
        let with = devices(&bed, &[]);
        let without = devices(&bed, &["--no-nvml"]);
        let uuids = without.keys().filter(|name| name.starts_with("GPU-")).count();
        let whole = with.keys().filter(|name| name.starts_with("GPU-")).count();
        assert!(uuids > 0, "{host}: {without:?}");
        for (name, nodes) in without.iter().filter(|(name, _)| *name != "all" && *name != "none") {
            // A GPU in MIG mode without instances cannot be told from one that is not in MIG mode.
            let in_mig_without_instances = host == "dgx-a100-mig" && nodes.contains("/dev/nvidia3");
            assert!(
                with.get(name) == Some(nodes) || in_mig_without_instances,
                "{host}: {name} is {nodes:?}, and with NVML {:?}",
                with.get(name)
            );
        }
        assert!(without.keys().all(|name| !name.contains(':')), "{host}: {without:?}");
        assert!(uuids <= whole + 1, "{host}: {without:?}");
    }
}

#[test]
fn what_is_known_without_nvml_is_the_same() {
    let bed = bed("dgx-a100-mig");
    let with = bed.look();
    let without = without(&bed);
    assert_eq!(without.source, Source::Proc);
    let facts = |i: &Inventory| -> Vec<_> {
        i.gpus
            .iter()
            .map(|g| (g.index, g.minor, g.uuid.clone(), g.pci, g.name.clone(), g.node.clone()))
            .collect()
    };
    assert_eq!(facts(&with), facts(&without));
    assert_eq!(with.nodes, without.nodes);
    assert_eq!(without.degraded, [], "it was not to be asked");
}

#[test]
fn a_gpu_with_instances_is_not_offered_whole_and_its_instances_have_no_name() {
    let inventory = without(&bed("dgx-a100-mig"));
    assert_eq!(inventory.mig_devices().count(), 0);
    let instances: Vec<usize> = inventory.gpus.iter().map(|g| g.unnamed_instances.len()).collect();
    // The last of GPU 6 is a GPU instance without a compute instance.
    assert_eq!(instances, [7, 3, 5, 0, 1, 0, 4, 0]);
    let in_mig: Vec<u32> = inventory
        .gpus
        .iter()
        .filter(|g| g.is_in_mig_mode())
        .map(|g| g.index.0)
        .collect();
    assert_eq!(in_mig, [0, 1, 2, 4, 6]);
    let told = warnings(&inventory);
    assert_eq!(told.len(), 5, "{told:#?}");
    assert!(
        told[0].starts_with("gpu 0: is divided by MIG") && told[0].contains("instances 7.0, 8.0"),
        "{told:#?}"
    );

    let root = bed("dgx-a100-mig");
    let root = root.host.root.to_str().unwrap();
    let (code, out, err) = tranche(&["cdi", "generate", "--no-nvml", "--no-hooks", "--root", root]);
    assert_eq!(code, Some(0), "{err}");
    assert!(!err.contains("has no instances"), "{err}");
    for name in ["\"0\"", "\"1\"", "\"2\"", "\"4\"", "\"6\""] {
        assert!(!out.contains(&format!("- name: {name}\n")), "{name} is offered");
    }
    for name in ["\"5\"", "\"7\""] {
        assert!(out.contains(&format!("- name: {name}\n")), "{name} is not offered");
    }
}

#[test]
fn an_excluded_gpu_leaves_uuids_alone() {
    let bed = bed("hgx-h200");
    let gpus = bed.host.path("/proc/driver/nvidia/gpus");
    let mut addresses: Vec<_> = fs::read_dir(&gpus).unwrap().map(|e| e.unwrap().path()).collect();
    addresses.sort();
    let file = addresses[2].join("information");
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("GPU Excluded:\t No"), "{text}");
    fs::write(&file, text.replace("GPU Excluded:\t No", "GPU Excluded:\t Yes")).unwrap();
    let inventory = without(&bed);
    assert_eq!(inventory.gpus.len(), 7);
    assert!(inventory.gpus.iter().all(|g| !g.index_is_known));
    let told = warnings(&inventory);
    assert_eq!(told.len(), 2, "{told:#?}");
    assert!(
        told[0].contains("have no index without NVML, because") && told[0].contains("is excluded"),
        "{told:#?}"
    );
    let names = devices(&bed, &["--no-nvml"]);
    let uuids = inventory.gpus.iter().map(|g| g.uuid.to_string());
    let expected: BTreeSet<String> = uuids.chain(["all".to_owned(), "none".to_owned()]).collect();
    assert_eq!(names.into_keys().collect::<BTreeSet<_>>(), expected);
}

#[test]
fn minors_in_another_order_leave_uuids_alone() {
    let inventory = without(&bed("minors-reordered"));
    assert!(inventory.gpus.iter().all(|g| !g.index_is_known));
    assert!(
        warnings(&inventory).iter().any(|w| w.contains("minor number")),
        "{:?}",
        warnings(&inventory)
    );
    assert!(without(&bed(SMALL)).gpus.iter().all(|g| g.index_is_known));
}

/// A policy that splits a GPU by an index that is not known must not split another one, and must not give it whole.
#[test]
fn a_policy_by_index_finds_no_gpu_whose_index_is_not_known() {
    let bed = bed("minors-reordered");
    let config = bed.host.path("/policy.yaml");
    let policy = |devices: &str| {
        let text = format!(
            "version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {{name: nvidia.com/gpu, {devices}replicas: 2}}\n"
        );
        fs::write(&config, text).unwrap();
    };
    let root = bed.host.root.to_str().unwrap();
    let generate = || {
        let config = format!("--config={}", config.display());
        tranche(&[
            "cdi",
            "generate",
            "--no-nvml",
            "--hook-path=/x",
            "--root",
            root,
            &config,
        ])
    };
    policy("devices: [0], ");
    let (_, _, err) = generate();
    assert!(err.contains("device 0: not found; this host has GPU-"), "{err}");
    policy("");
    let (code, out, err) = generate();
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("the policy splits it and its index is not known"), "{err}");
    assert!(!out.contains("name: GPU-"), "{out}");
}

/// An inventory that was saved by a program that guessed.
#[test]
fn a_saved_guess_is_not_believed() {
    let inventory = bed("dgx-a100-mig").look();
    let mut saved = serde_json::to_value(&inventory).unwrap();
    saved["source"] = "proc".into();
    for gpu in saved["gpus"].as_array_mut().unwrap() {
        gpu["mig"] = serde_json::Value::Null;
        for mig in gpu["mig_devices"].as_array_mut().unwrap() {
            mig["uuid"] = serde_json::Value::Null;
        }
    }
    let loaded = load("x", &saved.to_string()).unwrap();
    assert_eq!(loaded.mig_devices().count(), 0);
    assert!(loaded.gpus[0].is_in_mig_mode() && loaded.gpus[0].unnamed_instances.len() == 7);
    assert!(loaded.gpus.iter().all(|g| g.index_is_known));
    saved["gpus"].as_array_mut().unwrap().remove(2);
    let loaded = load("x", &saved.to_string()).unwrap();
    assert!(loaded.gpus.iter().all(|g| !g.index_is_known));
}
