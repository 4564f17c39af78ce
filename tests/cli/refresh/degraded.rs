//! A host that could not be examined completely, and one without a device.

use super::*;

fn degrade(inventory: &mut Value) {
    inventory["degraded"] = json!([{"what": "nvml", "why": "did not answer"}]);
    inventory["gpus"].as_array_mut().unwrap().truncate(1);
}

#[test]
fn a_degraded_host_never_replaces_the_files_of_a_good_one() {
    let bed = Bed::new();
    bed.share(RENAMED.replace("[0, 1]", "[0]").as_str());
    let degraded = bed.inventory("t4x2", degrade);
    bed.refreshed("sim:t4x2");
    let before = bed.files();
    let said = bed.refresh(&degraded, &[]);
    assert_eq!((said.code, said.err.lines().count()), (Some(1), 1), "{said:?}");
    assert!(
        said.err
            .contains("host.json: not refreshed, because the host was not examined completely: NVML did not answer;"),
        "{said:?}"
    );
    assert_eq!(bed.files(), before);
    // Good specifications alone are kept as well.
    fs::remove_file(bed.state().join("host.json")).unwrap();
    let specs = bed.files();
    assert_eq!(bed.refresh(&degraded, &[]).code, Some(1));
    assert_eq!(bed.files(), specs);
    bed.refreshed("sim:t4x2");
    let said = bed.refresh(&degraded, &["--degraded"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(bed.host_file().inventory.gpus.len(), 1);
}

/// A package that was removed, or an installation that is under way.
#[test]
fn a_driver_with_fewer_files_than_before_never_replaces_the_files_of_a_good_one() {
    let bed = Bed::new();
    bed.refreshed("sim:t4x2");
    let before = bed.files();
    let less = bed.inventory("t4x2", |inventory| {
        let files = inventory["driver"]["files"].as_array_mut().unwrap();
        files.retain(|file| !file["host"].as_str().unwrap().contains("/libnvidia-encode.so"));
    });
    let said = bed.refresh(&less, &[]);
    assert_eq!((said.code, said.err.lines().count()), (Some(1), 1), "{said:?}");
    let says = "the last refresh found these files of the same driver, and they are gone: libnvidia-encode.so.";
    assert!(said.err.contains(says), "{said:?}");
    assert_eq!(bed.files(), before);
    // On purpose: from then on it is as it should be.
    assert_eq!(bed.refresh(&less, &["--degraded"]).code, Some(0));
    bed.refreshed(&less);
    bed.refreshed("sim:t4x2");
}

#[test]
fn a_degraded_host_is_written_where_there_is_nothing_better() {
    let bed = Bed::new();
    let degraded = bed.inventory("t4x2", degrade);
    let said = bed.refresh(&degraded, &[]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(
        said.err.contains("host.json: written") && said.err.contains("tranche: not complete: NVML did not answer"),
        "{said:?}"
    );
    assert_eq!(bed.host_file().inventory.gpus.len(), 1);
    // It is not good, so it may be replaced.
    bed.share("  dedicated: {devices: [0]}\n");
    assert_eq!(bed.refresh(&degraded, &[]).code, Some(1));
    assert_eq!(bed.host_file().plan.devices.len(), 1);
    bed.refreshed("sim:t4x2");
    assert_eq!(bed.host_file().inventory.gpus.len(), 2);
}

#[test]
fn without_a_driver_the_files_of_an_earlier_refresh_are_removed() {
    let bed = Bed::new();
    let no_driver = bed.inventory("t4x2", |inventory| {
        inventory["driver"] = Value::Null;
        inventory["gpus"] = json!([]);
    });
    let said = bed.refresh(&no_driver, &[]);
    assert_eq!((said.code, said.err.lines().count()), (Some(3), 1), "{said:?}");
    assert!(!said.err.contains("removed") && !bed.at("cdi").exists(), "{said:?}");
    bed.share(RENAMED);
    bed.refreshed("sim:t4x2");
    fs::write(bed.spec("nvidia.com-claim_a.yaml"), "a claim\n").unwrap();
    let before = bed.files();
    let said = bed.refresh(&no_driver, &["--dry-run"]);
    assert!(
        said.code == Some(3) && said.err.contains("a refresh would remove "),
        "{said:?}"
    );
    assert_eq!(bed.files(), before);
    // The policy names GPUs that are gone: each is a warning.
    let said = bed.refresh(&no_driver, &["-q"]);
    assert_eq!((said.code, said.err.lines().count()), (Some(3), 1), "{said:?}");
    for name in ["/tranche.yaml", "/tranche-gpu.shared.yaml", "/host.json"] {
        assert!(said.err.contains(name), "{said:?}");
    }
    assert!(
        said.err.contains("was removed, because it is no longer true"),
        "{said:?}"
    );
    assert_eq!(bed.names(), "nvidia.com-claim_a.yaml");
    // A host that seems to have a driver and cannot be examined is another matter.
    let silent = bed.inventory("t4x2", |inventory| {
        degrade(inventory);
        inventory["gpus"] = json!([]);
    });
    bed.refreshed("sim:t4x2");
    let before = bed.files();
    assert_eq!(bed.refresh(&silent, &["-q"]).code, Some(1));
    assert_eq!(bed.files(), before);
}
