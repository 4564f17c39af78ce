//! What a start of a container is refused for, or what a command warns of, is a result of doctor with a fix of its own;
//! and after the fix, doctor no longer has that result.

use super::place::Place;
use crate::support::until::until;
use crate::support::{fake_host, programs};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const HOST: &str = "hgx-h200";

fn shared_by(strategy: &str) -> String {
    format!("version: v1\nsharing:\n  {strategy}:\n    resources:\n    - {{name: nvidia.com/gpu, replicas: 2}}\n")
}

#[test]
fn shares_under_mps_without_a_broker() {
    let Some(place) = Place::new("shares_under_mps_without_a_broker", HOST) else {
        return;
    };
    place.policy(&shared_by("mps"));
    place.refresh();
    let refused = place.claim("nvidia.com/gpu=0.0");
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("the broker, which does not run"), "{refused:?}");
    let fix = place.fix_of("broker-stopped");
    assert!(
        fix.contains("tranche broker") || fix == "systemctl enable --now tranche-broker.socket",
        "{fix}"
    );
    let _broker = place.start(&["broker"]);
    until("the broker listens", || place.at("state/broker.sock").exists());
    assert_eq!(place.found("broker-stopped"), [] as [serde_json::Value; 0]);
    assert_eq!(place.found("broker-refuses"), [] as [serde_json::Value; 0]);
}

#[test]
fn a_policy_that_cannot_be_used() {
    let Some(place) = Place::new("a_policy_that_cannot_be_used", HOST) else {
        return;
    };
    let missing = shared_by("timeSlicing").replace("replicas: 2", "replicas: 2, devices: [42]");
    let too_large = "version: v1\nsharing:\n  mps:\n    resources:\n    - name: nvidia.com/gpu\n      devices: [0]\n      shares:\n      \
                     - {name: a, memory: 100Gi}\n      - {name: b, memory: 100Gi}\n";
    let cases = [
        ("version: v1\nnodes: {}\n", "policy-warning", None),
        (
            "version: v1\nsharing:\n  msp: {}\n",
            "policy-invalid",
            Some("\"msp\" is unknown"),
        ),
        (too_large, "policy-unfit", Some("shares ask for")),
        (&missing, "policy-device-missing", None),
    ];
    let mut fixes = Vec::new();
    for (policy, finding, refused) in cases {
        place.policy(policy);
        let said = place.tranche(&["cdi", "refresh"]);
        match refused {
            Some(refused) => assert!(
                said.code != Some(0) && said.err.contains(refused),
                "{finding}: {said:?}"
            ),
            // The rest of the policy is used, and no container gets a share of that device.
            None => assert!(
                said.code == Some(0)
                    && ["device 42: not found", "\"nodes\" is unknown"]
                        .iter()
                        .any(|what| said.err.contains(what)),
                "{finding}: {said:?}"
            ),
        }
        fixes.push(place.fix_of(finding));
        place.policy("version: v1\n");
        assert!(place.found(finding).is_empty(), "{finding}");
    }
    fixes.sort();
    fixes.dedup();
    assert_eq!(fixes.len(), 4, "each has a fix of its own: {fixes:?}");
}

#[test]
fn a_damaged_book_of_the_ledger() {
    let Some(place) = Place::new("a_damaged_book_of_the_ledger", HOST) else {
        return;
    };
    place.policy(&shared_by("timeSlicing"));
    place.refresh();
    assert_eq!(place.claim("nvidia.com/gpu=0.0").code, Some(0));
    let entries = fs::read_dir(place.at("state/ledger")).unwrap();
    let mut books = entries.map(|entry| entry.unwrap().path());
    let book = books
        .find(|path| path.extension().is_some_and(|e| e == "claims"))
        .unwrap();
    fs::write(&book, "damaged").unwrap();
    let refused = place.claim("nvidia.com/gpu=0.1");
    assert!(
        refused.code == Some(1) && refused.err.contains("is not valid in a ledger"),
        "{refused:?}"
    );
    let fix = place.fix_of("ledger-damaged");
    assert!(fix.starts_with("remove it when no container holds a share"), "{fix}");
    fs::remove_file(&book).unwrap();
    assert!(place.found("ledger-damaged").is_empty());
    assert_eq!(place.claim("nvidia.com/gpu=0.1").code, Some(0));
}

#[test]
fn a_state_directory_that_others_may_write() {
    let Some(place) = Place::new("a_state_directory_that_others_may_write", HOST) else {
        return;
    };
    place.policy(&shared_by("timeSlicing"));
    place.refresh();
    fs::set_permissions(place.at("state"), PermissionsExt::from_mode(0o777)).unwrap();
    let refused = place.claim("nvidia.com/gpu=0.0");
    assert!(
        refused.code == Some(1) && refused.err.contains("has mode 0777"),
        "{refused:?}"
    );
    // It is a result, and not the end of doctor.
    let fix = place.fix_of("state-unsafe");
    assert_eq!(fix, format!("chmod go-w {}", place.at("state").display()));
    assert!(place.found("host-file-refused").is_empty() && place.found("ledger-unusable").is_empty());
    place.fix(&fix);
    assert!(place.found("state-unsafe").is_empty());
    assert_eq!(place.claim("nvidia.com/gpu=0.0").code, Some(0));
}

#[test]
fn a_damaged_host_file() {
    let Some(place) = Place::new("a_damaged_host_file", HOST) else {
        return;
    };
    place.refresh();
    fs::write(place.at("state/host.json"), "{").unwrap();
    let fix = place.fix_of("host-file-old");
    assert_eq!(fix, "tranche cdi refresh");
    place.fix(&fix);
    assert!(place.found("host-file-old").is_empty());
}

#[test]
fn a_module_and_libraries_of_two_versions() {
    let Some(place) = Place::new("a_module_and_libraries_of_two_versions", HOST) else {
        return;
    };
    let version = place.host.path("/proc/driver/nvidia/version");
    let text = fs::read_to_string(&version).unwrap();
    fs::write(&version, text.replace("570.124.06", "580.1.2")).unwrap();
    let said = place.tranche(&["list"]);
    assert!(
        said.err
            .contains("the kernel module is 580.1.2, the libraries are 570.124.06"),
        "{said:?}"
    );
    let fix = place.fix_of("versions-differ");
    assert!(fix.starts_with("restart the machine"), "{fix}");
    fs::write(&version, text).unwrap();
    assert!(place.found("versions-differ").is_empty());
}

#[test]
fn a_specification_that_users_cannot_read() {
    let Some(place) = Place::new("a_specification_that_users_cannot_read", HOST) else {
        return;
    };
    place.refresh();
    place.engine("podman", "podman version 4.3.1");
    let spec = place.at("cdi/tranche.yaml");
    for path in [spec.clone(), place.at("cdi")] {
        fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        // What a user's own podman finds.
        let listed = place.tranche_as_nobody(&["cdi", "list"]);
        assert!(!listed.out.contains("nvidia.com/gpu=0"), "{listed:?}");
        let fix = place.fix_of("spec-private");
        assert!(fix.starts_with("chmod a+rX "), "{fix}");
        place.fix(&fix);
        assert!(place.found("spec-private").is_empty());
        let listed = place.tranche_as_nobody(&["cdi", "list"]);
        assert!(listed.out.contains("nvidia.com/gpu=0"), "{listed:?}");
    }
}

#[test]
fn a_node_with_wrong_numbers() {
    let Some(place) = Place::new("a_node_with_wrong_numbers", HOST) else {
        return;
    };
    for name in ["nvidia3", "nvidia-uvm"] {
        let node = place.host.path("/dev").join(name);
        fs::remove_file(&node).unwrap();
        let made = Command::new("mknod").arg(&node).args(["c", "1", "3"]).status().unwrap();
        assert!(made.success());
        let said = place.tranche(&["list"]);
        assert!(said.err.contains("is 1:3, expected"), "{said:?}");
        let troubles = place.troubles();
        let of_driver = ["device-lost", "node-missing", "module-not-loaded", "node-wrong"];
        let found: Vec<&str> = troubles
            .iter()
            .filter_map(|one| one["finding"].as_str())
            .filter(|finding| of_driver.contains(finding))
            .collect();
        assert_eq!(found, ["node-wrong"], "{troubles:?}");
        place.fix(&place.fix_of("node-wrong"));
        assert!(place.found("node-wrong").is_empty() && place.found("node-missing").is_empty());
    }
}

#[test]
fn a_hook_that_is_gone() {
    let Some(place) = Place::new("a_hook_that_is_gone", HOST) else {
        return;
    };
    place.refresh();
    let spec = place.at("cdi/tranche.yaml");
    let text = fs::read_to_string(&spec).unwrap();
    let own = text.lines().find_map(|line| {
        line.trim()
            .strip_prefix("path: ")
            .filter(|p| p.ends_with("/tranche-oci"))
    });
    let own = own.unwrap().to_owned();
    let gone = || fs::write(&spec, text.replace(&own, "/nowhere/tranche-oci")).unwrap();
    gone();
    assert_eq!(place.tranche(&["cdi", "validate"]).code, Some(4));
    let fix = place.fix_of("spec-hook-missing");
    assert_eq!(fix, "tranche cdi refresh");
    place.fix(&fix);
    assert!(place.found("spec-hook-missing").is_empty());
    // A tranche that was installed alone would name another hook that does not exist.
    gone();
    let alone = place.at("alone");
    programs::install(env!("CARGO_BIN_EXE_tranche"), alone.join("tranche"));
    let mut command = Command::new(alone.join("tranche"));
    command.args(["doctor", "--json", &format!("--spec-dir={}", place.at("cdi").display())]);
    let said = crate::said(command);
    let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let hook = checks.iter().find(|one| one["finding"] == "spec-hook-missing").unwrap();
    assert!(
        hook["fix"]
            .as_str()
            .unwrap()
            .starts_with("install tranche-oci as /nowhere/tranche-oci"),
        "{hook}"
    );
}

#[test]
fn a_file_that_a_refreshed_specification_names() {
    let Some(place) = Place::new("a_file_that_a_refreshed_specification_names", HOST) else {
        return;
    };
    place.refresh();
    let spec = place.at("cdi/tranche.yaml");
    let text = fs::read_to_string(&spec).unwrap();
    // As another program would leave it: the header is still that of this host.
    fs::write(&spec, text.replace("/usr/bin/nvidia-smi", "/usr/bin/nvidia-gone")).unwrap();
    let fix = place.fix_of("spec-files-missing");
    assert_eq!(fix, "tranche cdi refresh");
    place.fix(&fix);
    assert!(place.found("spec-files-missing").is_empty());
}

#[test]
fn a_driver_update_is_one_result() {
    let Some(place) = Place::new("a_driver_update_is_one_result", HOST) else {
        return;
    };
    place.refresh();
    let before = place.troubles();
    fs::remove_dir_all(&place.host.root).unwrap();
    fake_host::build_with_driver(HOST, "580.65.06", &place.host.root).unwrap();
    let finding = |one: &serde_json::Value| one["finding"].as_str().unwrap().to_owned();
    let new: Vec<String> = place
        .troubles()
        .iter()
        .map(finding)
        .filter(|one| !before.iter().any(|old| finding(old) == *one))
        .collect();
    assert_eq!(new, ["spec-stale"]);
    let found = place.found("spec-stale");
    assert!(
        found[0]["found"].as_str().unwrap().contains("files do not exist"),
        "{found:?}"
    );
    place.fix(&place.fix_of("spec-stale"));
    assert_eq!(
        place.troubles().iter().map(finding).collect::<Vec<_>>(),
        before.iter().map(finding).collect::<Vec<_>>()
    );
}

/// A host without a fault has no result.
#[test]
fn a_healthy_host_has_no_result() {
    let incomplete = ["driver-container", "driver-no-gpu", "l4-one-lost", "no-driver"];
    for name in fake_host::names().unwrap() {
        if incomplete.contains(&name.as_str()) {
            continue;
        }
        let Some(place) = Place::new("a_healthy_host_has_no_result", &name) else {
            return;
        };
        let root = format!("--root={}", place.host.root.display());
        let words = |verb: &[&str]| -> Vec<String> {
            let place = [
                root.clone(),
                format!("--state-dir={}", place.at("state").display()),
                format!("--config={}", place.at("config.yaml").display()),
            ];
            verb.iter().map(|word| (*word).to_owned()).chain(place).collect()
        };
        let run = |words: Vec<String>| crate::tranche(&words.iter().map(String::as_str).collect::<Vec<_>>());
        let output = format!("--output-dir={}", place.at("cdi").display());
        let refreshed = run(words(&["cdi", "refresh", &output]));
        assert_eq!(refreshed.code, Some(0), "{name}: {refreshed:?}");
        let specs = format!("--spec-dir={}", place.at("cdi").display());
        let said = run(words(&["doctor", "--json", &specs]));
        let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        let findings = report["checks"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|one| one["finding"].as_str());
        // The programs of a test have a loader, the policy is an empty one, one of these hosts has GPUs that were left
        // in MIG mode and in a change of it, and two have drivers of which faults are known.
        let expected = [
            "hook-not-static",
            "policy-empty",
            "mig-empty",
            "mig-pending",
            "known-fault",
        ];
        let others: Vec<&str> = findings.filter(|finding| !expected.contains(finding)).collect();
        assert_eq!(others, [] as [&str; 0], "{name}: {}", said.out);
    }
}
