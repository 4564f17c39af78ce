//! Faults of the host for which a start fails or a policy means nothing, and fixes that work only in the right order.

use super::place::Place;
use crate::support::own_mounts;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

const HOST: &str = "hgx-h200";

const NOTHING: [Value; 0] = [];

#[test]
fn a_state_directory_without_room() {
    let Some(place) = Place::new("a_state_directory_without_room", HOST) else {
        return;
    };
    let lived = own_mounts::with_own_mounts(|| {
        let state = place.at("state");
        let mount = |options: &str| {
            let words = ["-t", "tmpfs", "-o", options, "none"];
            assert!(
                Command::new("mount")
                    .args(words)
                    .arg(&state)
                    .status()
                    .unwrap()
                    .success()
            );
        };
        mount("size=4m,mode=0755");
        place.refresh();
        assert_eq!(place.found("no-room"), NOTHING);
        let filler = state.join("filler");
        let file = format!("of={}", filler.display());
        let filled = Command::new("dd")
            .args(["if=/dev/zero", "bs=64k", &file])
            .output()
            .unwrap();
        assert!(!filled.status.success(), "the disk is full");
        // What has to be written again cannot be.
        fs::write(place.at("cdi/tranche.yaml"), "").unwrap();
        fs::remove_file(place.at("cdi/tranche.yaml")).unwrap();
        let fix = place.fix_of("spec-missing");
        assert_eq!(fix, "correct the result no-room first; then run tranche cdi refresh");
        let fix = place.fix_of("no-room");
        let command = fix.split_once("larger: ").unwrap().1.replace("SIZE", "16m");
        place.fix(&command);
        assert_eq!(place.found("no-room"), NOTHING, "{fix}");
        place.fix(&place.fix_of("spec-missing"));
        assert_eq!(place.found("spec-missing"), NOTHING);
    });
    lived.unwrap();
}

#[test]
fn a_policy_that_gives_nothing() {
    let Some(place) = Place::new("a_policy_that_gives_nothing", HOST) else {
        return;
    };
    let of = |name: &str| {
        format!("version: v1\nsharing:\n  timeSlicing:\n    resources:\n    - {{name: {name}, replicas: 2}}\n")
    };
    for (policy, says) in [
        ("".to_owned(), "shares no device"),
        ("version: v1\n".to_owned(), "shares no device"),
        (
            of("nvidia.com/mig-1g.18gb"),
            "has 1 entry that share devices, and this host has none of these devices",
        ),
    ] {
        place.policy(&policy);
        let found = place.found("policy-empty");
        assert!(
            matches!(&found[..], [one] if one["found"].as_str().unwrap().contains(says)),
            "{policy}: {found:?}"
        );
        place.policy(&of("nvidia.com/gpu"));
        assert_eq!(place.found("policy-empty"), NOTHING);
    }
    // It has other effects.
    place.policy("version: v1\nruntime: {claimsFromEnvironment: never}\n");
    assert_eq!(place.found("policy-empty"), NOTHING);
}

#[test]
fn a_libcuda_of_another_driver() {
    let Some(place) = Place::new("a_libcuda_of_another_driver", HOST) else {
        return;
    };
    assert_eq!(place.found("libraries-mixed"), NOTHING);
    let link = place.host.path("/usr/lib/x86_64-linux-gnu/libcuda.so.1");
    let target = fs::read_link(&link).unwrap();
    let other = link.with_file_name("libcuda.so.535.104.05");
    fs::write(&other, "").unwrap();
    fs::remove_file(&link).unwrap();
    symlink("libcuda.so.535.104.05", &link).unwrap();
    let found = place.found("libraries-mixed");
    let [one] = &found[..] else {
        panic!("{found:?}; {:?}", place.troubles())
    };
    assert!(
        one["found"].as_str().unwrap().contains("libcuda.so.535.104.05"),
        "{one}"
    );
    // What the fix says, as a person does it: ldconfig makes the link again.
    fs::remove_file(&other).unwrap();
    fs::remove_file(&link).unwrap();
    symlink(target, &link).unwrap();
    assert_eq!(place.found("libraries-mixed"), NOTHING);
}

#[test]
fn a_mig_mode_that_waits_for_a_reset() {
    let Some(place) = Place::new("a_mig_mode_that_waits_for_a_reset", "dgx-a100-mig") else {
        return;
    };
    // A GPU of this host was left so.
    let found = place.found("mig-pending");
    let says = "MIG mode is to be turned on with the next reset of gpu 5";
    assert!(matches!(&found[..], [one] if one["found"] == says), "{found:?}");
    place
        .host
        .nvml(|config| {
            for gpu in config["gpus"].as_array_mut().unwrap() {
                let current = gpu["mig"]["current"].as_bool().unwrap();
                gpu["mig"]["pending"] = json!(!current);
            }
        })
        .unwrap();
    let found = place.found("mig-pending");
    assert_eq!(found.len(), 2, "one for each mode, however many GPUs: {found:?}");
}

#[test]
fn eight_gpus_without_nodes_are_one_result() {
    let Some(place) = Place::new("eight_gpus_without_nodes_are_one_result", HOST) else {
        return;
    };
    let devices = place.host.path("/proc/devices");
    let text = fs::read_to_string(&devices).unwrap();
    let without: Vec<&str> = text.lines().filter(|line| !line.contains("nvidia")).collect();
    fs::write(&devices, without.join("\n")).unwrap();
    for gpu in 0..8 {
        fs::remove_file(place.host.path(&format!("/dev/nvidia{gpu}"))).unwrap();
    }
    for name in ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"] {
        fs::remove_file(place.host.path(&format!("/dev/{name}"))).unwrap();
    }
    let of_driver = ["device-lost", "node-missing", "module-not-loaded", "node-wrong"];
    let troubles = place.troubles();
    let found: Vec<&str> = troubles.iter().filter_map(|one| one["finding"].as_str()).collect();
    let found: Vec<&&str> = found.iter().filter(|finding| of_driver.contains(finding)).collect();
    assert_eq!(found, [&"module-not-loaded"], "{troubles:?}");
}

#[test]
fn a_library_that_is_gone_is_not_cured_by_a_refresh() {
    let Some(place) = Place::new("a_library_that_is_gone_is_not_cured_by_a_refresh", HOST) else {
        return;
    };
    place.refresh();
    let directory = place.host.path("/usr/lib/x86_64-linux-gnu");
    let library = directory.join("libnvidia-opencl.so.570.124.06");
    let text = fs::read(&library).unwrap();
    let before = place.troubles().len();
    fs::remove_file(&library).unwrap();
    let troubles = place.troubles();
    assert_eq!(troubles.len(), before + 1, "one cause is one result: {troubles:?}");
    let fix = place.fix_of("files-lost");
    assert!(fix.starts_with("install these files again"), "{fix}");
    // --fix says that it corrects nothing, and what does.
    let engines = format!("--engine-dir={}", place.at("engines").display());
    let said = place.tranche(&["doctor", "--fix", &engines]);
    assert!(said.err.contains("--fix: nothing was corrected"), "{said:?}");
    assert!(
        said.err.contains("; next, ") && !said.err.contains("running tranche"),
        "{said:?}"
    );
    fs::write(&library, text).unwrap();
    assert_eq!(place.found("files-lost"), NOTHING);
}

/// A host.json and a specification in a directory to which no refresh writes any more.
#[test]
fn an_old_specification_in_another_directory() {
    let Some(place) = Place::new("an_old_specification_in_another_directory", HOST) else {
        return;
    };
    place.refresh();
    let (old, new) = (place.at("old"), place.at("cdi"));
    fs::create_dir(&old).unwrap();
    let text = fs::read_to_string(new.join("tranche.yaml")).unwrap();
    fs::write(
        old.join("tranche.yaml"),
        text.replace("/usr/bin/nvidia-smi", "/usr/bin/nvidia-gone"),
    )
    .unwrap();
    let words = [
        format!("--spec-dir={}", old.display()),
        format!("--spec-dir={}", new.display()),
        format!("--engine-dir={}", place.at("engines").display()),
    ];
    let doctor = |options: &[&str]| {
        let words: Vec<&str> = [&["doctor"][..], options, &[&words[0], &words[1], &words[2]]].concat();
        place.tranche(&words)
    };
    let found = || -> Vec<Value> {
        let said = doctor(&["--json"]);
        let report: Value = serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        let checks = report["checks"].as_array().unwrap().iter();
        checks
            .filter(|one| one["finding"] == "spec-files-missing")
            .cloned()
            .collect()
    };
    let fix = found()[0]["fix"].as_str().unwrap().to_owned();
    assert_eq!(fix, format!("rm {}", old.join("tranche.yaml").display()));
    place.fix(&fix);
    assert_eq!(found(), NOTHING);
}
