//! `tranche metrics`, read by a strict reader.

use super::observed::Machine;
use super::*;
use crate::support::openmetrics::{self, Series};

fn series(text: &str) -> Series {
    openmetrics::read(text).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"))
}

/// The value of the series of this name whose labels contain all of `labels`.
#[track_caller]
fn value(series: &Series, name: &str, labels: &[&str]) -> f64 {
    let fits = |key: &&String| key.split('{').next() == Some(name) && labels.iter().all(|label| key.contains(label));
    let found: Vec<&String> = series.keys().filter(fits).collect();
    assert_eq!(found.len(), 1, "{name} {labels:?}: {found:?} of {series:?}");
    series[found[0]]
}

/// A machine with a container that computes, one that does not, and a claim made beforehand.
fn busy(test: &str) -> Option<(Machine, [Init; 2])> {
    let machine = Machine::new(test)?;
    let scene = &machine.scene;
    scene.name_containers(&[("aaaa1111", "tr\"ain")]);
    let train = scene.start("nvidia.com/gpu=0.1", "aaaa1111");
    let idle = scene.start("nvidia.com/gpu=0.any", "bbbb2222");
    scene.create(&["--name=later", "--memory=1Gi"]).run().ok();
    let processes = json!([{"pid": train.pid(), "kind": "compute", "memory_mib": 512, "sm": 37}]);
    machine.does(
        0,
        processes,
        json!({"used_mib": 700, "utilization": {"gpu": 40, "memory": 5}}),
    );
    machine.does(1, json!([]), json!({"compute_mode": 3}));
    Some((machine, [train, idle]))
}

#[test]
fn the_metrics_are_the_state_of_the_machine() {
    let Some((machine, _inits)) = busy("metrics_are_the_state_of_the_machine") else {
        return;
    };
    let text = machine.call(&["metrics"]).run().ok();
    let all = series(&text);
    const MIB: f64 = (1 << 20) as f64;
    let gpu = "device=\"nvidia.com/gpu=0\"";
    for (name, labels, expected) in [
        ("tranche_problems", &[][..], 0.0),
        ("tranche_waiters", &[], 0.0),
        ("tranche_host_file_current", &[], 1.0),
        ("tranche_device_shares", &[gpu], 4.0),
        ("tranche_device_shares_held", &[gpu], 2.0),
        ("tranche_device_shares_free", &[gpu], 2.0),
        ("tranche_device_held_whole", &[gpu], 0.0),
        ("tranche_device_readable", &[gpu], 1.0),
        ("tranche_device_memory_bytes", &[gpu], 15109.0 * MIB),
        ("tranche_device_memory_used_bytes", &[gpu], 700.0 * MIB),
        ("tranche_device_busy_ratio", &[gpu], 0.4),
        ("tranche_device_memory_busy_ratio", &[gpu], 0.05),
        ("tranche_device_processes", &[gpu], 1.0),
        ("tranche_device_exclusive", &[gpu], 0.0),
        ("tranche_device_exclusive", &["gpu=1"], 1.0),
        (
            "tranche_claim_held",
            &[gpu, "shares=\"1\"", "strategy=\"time-slicing\""],
            1.0,
        ),
        ("tranche_claim_held", &["shares=\"small\"", "strategy=\"mps\""], 0.0),
        ("tranche_claim_memory_used_bytes", &[gpu, "shares=\"1\""], 512.0 * MIB),
        ("tranche_claim_busy_ratio", &[gpu, "shares=\"1\""], 0.37),
        ("tranche_claim_processes", &[gpu, "shares=\"0\""], 0.0),
        ("tranche_claim_memory_limit_bytes", &["shares=\"small\""], 2048.0 * MIB),
        ("tranche_claim_compute_limit_ratio", &["shares=\"small\""], 0.2),
    ] {
        assert_eq!(value(&all, name, labels), expected, "{name} {labels:?}");
    }
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    let since = value(&all, "tranche_claim_start_time_seconds", &["shares=\"1\""]);
    assert!(since <= now && since > now - 600.0, "{since}");
    assert!(!text.contains("aaaa1111") && !text.contains("tr\\\"ain"), "{text}");
    assert!(text.contains("claim=\"\",container=\"\",container_name=\"\""), "{text}");

    let text = machine.call(&["metrics", "--with-containers"]).run().ok();
    let all = series(&text);
    value(
        &all,
        "tranche_claim_held",
        &["container=\"aaaa1111\",container_name=\"tr\\\"ain\""],
    );
    value(&all, "tranche_claim_held", &["claim=\"later\""]);

    // Without NVML, what it says is missing, and nothing else.
    let text = machine.call(&["metrics", "--no-gpu"]).run().ok();
    let without = series(&text);
    assert!(
        without
            .keys()
            .all(|key| !key.contains("busy") && !key.contains("processes"))
    );
    assert_eq!(value(&without, "tranche_device_shares_held", &[gpu]), 2.0);
}

/// The name of a share says its size only together with the policy under which it was claimed.
#[test]
fn two_claims_of_one_share_name_are_two_series() {
    let Some(scene) = Scene::new("two_claims_of_one_share_name_are_two_series") else {
        return;
    };
    let before = scene.start("nvidia.com/gpu=0.0", "aaaa1111");
    scene.policy(&POLICY.replace("replicas: 4", "replicas: 10"));
    scene.refresh();
    let after = scene.start("nvidia.com/gpu=0.0", "bbbb2222");
    let text = scene.tranche(&["metrics", "--no-gpu"]).run().ok();
    let all = series(&text);
    let labels = |size: &str| format!("shares=\"0 ({size})\"");
    for size in ["1/4", "1/10"] {
        assert_eq!(value(&all, "tranche_claim_held", &[&labels(size)]), 1.0);
    }
    drop((before, after));
}

#[test]
fn a_dedicated_device_is_one_share() {
    let Some(scene) = Scene::new("a_dedicated_device_is_one_share") else {
        return;
    };
    scene.policy("version: v1\nsharing:\n  dedicated: {devices: [0]}\n");
    scene.refresh();
    let shares = |expected: [f64; 3]| {
        let all = series(&scene.tranche(&["metrics", "--no-gpu"]).run().ok());
        for (name, expected) in ["shares", "shares_held", "shares_free"].iter().zip(expected) {
            let found = value(
                &all,
                &format!("tranche_device_{name}"),
                &["device=\"nvidia.com/gpu=0\""],
            );
            assert_eq!(found, expected, "{name}");
        }
    };
    shares([1.0, 0.0, 1.0]);
    let init = scene.start("nvidia.com/gpu=0", "aaaa1111");
    shares([1.0, 1.0, 0.0]);
    drop(init);
}

#[test]
fn a_state_that_cannot_be_read_completely_says_so_in_the_metrics() {
    let Some((machine, _inits)) = busy("metrics_of_an_incomplete_state") else {
        return;
    };
    let ledger = machine.scene.at("state/ledger");
    let book = names_in(&ledger)
        .into_iter()
        .find(|name| name.starts_with("GPU-da1435d3"))
        .unwrap();
    fs::write(ledger.join(book), "?").unwrap();
    let file = machine.scene.at("node/tranche.prom");
    let output = format!("--output={}", file.display());
    let said = machine.call(&["metrics", &output]).run();
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
    let all = series(&fs::read_to_string(&file).unwrap());
    assert_eq!(value(&all, "tranche_problems", &[]), 1.0);
    let gpu = "device=\"nvidia.com/gpu=0\"";
    assert_eq!(value(&all, "tranche_device_readable", &[gpu]), 0.0);
    assert_eq!(value(&all, "tranche_deviations", &["kind=\"unreadable-ledger\""]), 1.0);
    assert!(
        all.keys()
            .all(|key| !(key.contains("shares_held") && key.contains(gpu))),
        "it is not known"
    );
}

#[test]
fn the_file_is_replaced_in_one_step() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let Some((machine, _inits)) = busy("metrics_file_is_replaced_in_one_step") else {
        return;
    };
    let file = machine.scene.at("tranche.prom");
    let output = format!("--output={}", file.display());
    let write = || {
        assert_eq!(machine.call(&["metrics", &output]).run().ok(), "");
        series(&fs::read_to_string(&file).unwrap());
        fs::metadata(&file).unwrap()
    };
    let (first, second) = (write(), write());
    assert_ne!(first.ino(), second.ino(), "a reader of the old file keeps it");
    assert_eq!(second.permissions().mode() & 0o777, 0o644);
}

/// Existing dashboards find GPUs by the names that they know, and the containers on them.
#[test]
fn the_metrics_have_the_names_of_others() {
    let Some((machine, _inits)) = busy("metrics_have_the_names_of_others") else {
        return;
    };
    let names = |names: &str| {
        let option = format!("--names={names}");
        series(&machine.call(&["metrics", &option, "--with-containers"]).run().ok())
    };
    let otel = names("otel");
    assert_eq!(
        value(
            &otel,
            "hw_gpu_utilization_ratio",
            &["hw_name=\"nvidia.com/gpu=0\"", "hw_id=\"GPU-"]
        ),
        0.4
    );
    let of_container = [
        "shares=\"1\"",
        "container_id=\"aaaa1111\"",
        "container_name=\"tr\\\"ain\"",
        "hw_id=\"GPU-",
    ];
    assert_eq!(value(&otel, "tranche_claim_busy_ratio", &of_container), 0.37);
    let dcgm = names("dcgm");
    let labels = [
        "gpu=\"0\"",
        "UUID=\"GPU-",
        "pci_bus_id=\"0000",
        "device=\"nvidia0\"",
        "modelName=\"",
    ];
    assert_eq!(value(&dcgm, "DCGM_FI_DEV_GPU_UTIL", &labels), 40.0);
    assert_eq!(value(&dcgm, "DCGM_FI_DEV_FB_USED", &labels), 700.0);
    assert_eq!(
        value(
            &dcgm,
            "tranche_claim_busy_ratio",
            &["container=\"tr\\\"ain\"", "UUID=\"GPU-"]
        ),
        0.37
    );
    let wrong = machine.call(&["metrics", "--names=nagios"]).run();
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}
