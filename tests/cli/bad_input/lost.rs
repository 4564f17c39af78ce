//! A GPU that is lost.

use super::*;

/// Whether an inventory is complete depends on the devices that were asked for.
#[test]
fn a_lost_gpu_does_not_matter_to_those_who_ask_for_another() {
    let directory = tempfile::tempdir().unwrap();
    let host = fake_host::build("l4-one-lost", &directory.path().join("host")).unwrap();
    let root = format!("--root={}", host.root.display());
    let saved = program(&["inventory", &root]).output().unwrap();
    let mut inventory: Value = serde_json::from_slice(&saved.stdout).unwrap();
    let write = |inventory: &Value| {
        let file = directory.path().join("inventory.json");
        fs::write(&file, inventory.to_string()).unwrap();
        format!("--inventory={}", file.display())
    };
    let generate = |from: &str, ids: &[&str]| {
        let file = directory.path().join("nvidia.yaml");
        fs::write(&file, "good\n").unwrap();
        let mut command = program(&["cdi", "generate", from, "--output"]);
        command
            .arg(&file)
            .args(ids.iter().map(|id| format!("--device-id={id}")));
        let output = command.output().unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(output.status.success(), text != "good\n", "{ids:?}: {}", said(&output));
        (output.status.code(), said(&output))
    };
    let from = write(&inventory);
    let uuid = inventory["gpus"][1]["uuid"].as_str().unwrap().to_owned();
    for ids in [&["0"][..], &["3", "0"], &[&uuid], &["0000:21:00.0"], &["none"]] {
        let (code, said) = generate(&from, ids);
        assert_eq!(code, Some(0), "{ids:?}: {said}");
        assert!(!said.contains("not complete"), "{ids:?}: {said}");
    }
    for ids in [&[][..], &["all"], &["0", "all"]] {
        assert_eq!(generate(&from, ids).0, Some(1), "{ids:?}");
    }
    let (code, said) = generate(&from, &["0", "2"]);
    assert!(code != Some(0) && said.contains("device 2: not found"), "{said}");
    // What the driver lacks is missing from every device, and what a device lacks from that device.
    let library = json!({"what": "library", "soname": "libcuda.so.1"});
    let node = json!({"what": "device", "device": "gpu 3", "why": "has no device node /dev/nvidia3"});
    inventory["degraded"] = json!([node, library]);
    assert_eq!(generate(&write(&inventory), &["0"]).0, Some(1));
    inventory["degraded"] = json!([node]);
    let from = write(&inventory);
    assert_eq!(generate(&from, &["0"]).0, Some(0));
    assert_eq!(generate(&from, &["3"]).0, Some(1));
    // Without one that has no index, the indices of the others may be different ones.
    inventory["degraded"] = json!([{"what": "device", "device": "gpu 0000:a1:00.0", "why": "does not answer"}]);
    let from = write(&inventory);
    assert_eq!(generate(&from, &["0"]).0, Some(1));
    assert_eq!(generate(&from, &[&uuid]).0, Some(0));
    // So it is with MIG devices. A GPU in MIG mode contains its MIG devices.
    let saved = program(&["inventory", "--inventory=sim:dgx-a100-mig"])
        .output()
        .unwrap();
    let mut inventory: Value = serde_json::from_slice(&saved.stdout).unwrap();
    let of_mig = inventory["gpus"].as_array().unwrap();
    let of_mig = of_mig
        .iter()
        .find(|gpu| gpu["mig_devices"].as_array().unwrap().len() > 1);
    let gpu = of_mig.unwrap()["index"].as_u64().unwrap();
    inventory["degraded"] = json!([{"what": "device", "device": format!("gpu {gpu}:0"), "why": "has no UUID"}]);
    let from = write(&inventory);
    for (id, code) in [(format!("{gpu}:1"), 0), (format!("{gpu}:0"), 1), (gpu.to_string(), 1)] {
        let (found, said) = generate(&from, &[&id]);
        assert_eq!(found, Some(code), "{id}: {said}");
    }
}
