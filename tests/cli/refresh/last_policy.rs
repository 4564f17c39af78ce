//! A policy that is wrong changes nothing: that of the last refresh stays in force.

use super::*;

impl Bed {
    /// Writes this text as the policy.
    fn policy(&self, text: &str) {
        fs::write(self.at("config.yaml"), text).unwrap();
    }

    fn shared_gpus(&self) -> usize {
        self.host_file().plan.devices.len()
    }
}

/// The kept policy is in the directory of the state that survives a boot.
fn kept(bed: &Bed) -> PathBuf {
    bed.state().join("kept/last-policy.json")
}

#[test]
fn what_is_not_valid_or_does_not_fit_leaves_the_last_policy_in_force() {
    let bed = Bed::new();
    bed.share(RENAMED);
    bed.refreshed("sim:t4x2");
    let before = bed.files();
    let valid = fs::read_to_string(bed.at("config.yaml")).unwrap();
    let too_much = "version: v1\nsharing:\n  mps:\n    resources:\n    - name: nvidia.com/gpu\n      devices: [0]\n      \
                    shares: [{name: big, compute: 80%, memory: 64Gi}]\n";
    for (wrong, says) in [
        (
            "version: v1\nsharing: {timeSlicing: {resource: []}}\n",
            "config.yaml:2:",
        ),
        ("version: v1\nsharing: {\n", "config.yaml:"),
        (too_much, "asks for 64.0 GiB of 14.7 GiB"),
    ] {
        bed.policy(wrong);
        let said = bed.refresh("sim:t4x2", &[]);
        assert_eq!(said.code, Some(1), "{said:?}");
        let last = said.err.lines().last().unwrap();
        assert!(last.starts_with("tranche: ") && last.contains(says), "{said:?}");
        assert!(
            last.ends_with("; the policy of the last refresh stays in force"),
            "{said:?}"
        );
        for file in ["tranche.yaml", "tranche-gpu.shared.yaml"] {
            assert_eq!(bed.files()[file], before[file], "{file}");
        }
        // The runtime and the broker read it, and need no other refresh.
        assert_eq!(HostFile::read(&bed.state()).unwrap().plan.devices.len(), 2);
        // It is said each time.
        assert_eq!(bed.refresh("sim:t4x2", &["--if-changed"]).code, Some(1));
    }
    // The host may change meanwhile.
    let smaller = bed.inventory("t4x2", |inventory| {
        inventory["gpus"].as_array_mut().unwrap().truncate(1);
    });
    assert_eq!(bed.refresh(&smaller, &[]).code, Some(1));
    assert_eq!((bed.host_file().inventory.gpus.len(), bed.shared_gpus()), (1, 1));
    bed.policy(&valid);
    bed.refreshed("sim:t4x2");
    assert_eq!(bed.shared_gpus(), 2);
    bed.share("");
    bed.refreshed("sim:t4x2");
    assert_eq!(bed.shared_gpus(), 0);
    // What counts now is a policy without shares, and not the one before it.
    bed.policy("sharing: [");
    assert_eq!(bed.refresh("sim:t4x2", &[]).code, Some(1));
    assert_eq!(bed.shared_gpus(), 0);
}

#[test]
fn without_a_policy_that_was_applied_a_wrong_one_is_an_error() {
    let bed = Bed::new();
    bed.policy("sharing: [");
    let said = bed.refresh("sim:t4x2", &[]);
    assert!(said.code == Some(2) && !said.err.contains("in force"), "{said:?}");
    assert!(!kept(&bed).exists());
    // Nor is one that was only looked at.
    bed.share(RENAMED);
    assert_eq!(bed.refresh("sim:t4x2", &["--dry-run"]).code, Some(0));
    assert!(!kept(&bed).exists());
    bed.refreshed("sim:t4x2");
    // A bit that has changed would be another policy.
    let text = fs::read_to_string(kept(&bed)).unwrap();
    fs::write(kept(&bed), text.replacen("replicas: 4", "replicas: 5", 1)).unwrap();
    bed.policy("sharing: [");
    let said = bed.refresh("sim:t4x2", &[]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("last-policy.json: is not valid"), "{said:?}");
}

/// A policy of another file is not the one that somebody made a mistake in.
#[test]
fn the_policy_of_another_file_does_not_count() {
    let bed = Bed::new();
    bed.share(RENAMED);
    bed.refreshed("sim:t4x2");
    let other = bed.at("other.yaml");
    fs::write(&other, "sharing: [").unwrap();
    let option = format!("--config={}", other.display());
    let mut command = bed.command("sim:t4x2", &[]);
    // The last one of an option that is given twice.
    let output = command.arg(option).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
