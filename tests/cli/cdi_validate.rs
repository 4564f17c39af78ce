//! What `tranche cdi validate` reports, in how many lines, and with which exit code.

use crate::program;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn validate_finds_what_a_specification_points_at() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.yaml");
    let validate = |text: &str| {
        fs::write(&file, text).unwrap();
        let output = program(&["cdi", "validate"]).arg(&file).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    let spec = |kind: &str, host: &str, hook: &str| {
        format!(
            "cdiVersion: 0.5.0\nkind: {kind}\ndevices:\n- name: a\n  containerEdits:\n    env: [A=b]\ncontainerEdits:\n  \
             mounts:\n  - hostPath: {host}\n    containerPath: /x\n  hooks:\n  - hookName: createContainer\n    path: {hook}\n"
        )
    };
    assert_eq!(
        validate(&spec("x.com/card", "/etc", "/bin/sh")),
        (Some(0), String::new())
    );
    let (code, said) = validate(&spec("x.com/card", "/nowhere/libcuda.so.1", "/nowhere/hook"));
    assert_eq!((code, said.lines().count()), (Some(4), 2), "{said}");
    assert!(
        said.contains("x.yaml:9:15: containerEdits.mounts[0].hostPath: /nowhere/libcuda.so.1 does not exist"),
        "{said}"
    );
    assert!(
        said.contains("x.yaml:13:11: containerEdits.hooks[0].path: /nowhere/hook does not exist"),
        "{said}"
    );
    let (code, said) = validate(&spec("x.com/y", "/etc", "/bin/sh"));
    assert_eq!(code, Some(4));
    assert!(said.contains("one letter, which makes engines crash"), "{said}");
}

#[test]
fn what_many_devices_lack_is_reported_once() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("nvidia.yaml");
    let arguments = ["cdi", "generate", "--inventory=sim:hgx-h200", "--no-hooks", "--output"];
    assert!(program(&arguments).arg(&file).status().unwrap().success());
    let output = program(&["cdi", "validate"]).arg(&file).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(4), "{said}");
    let lines: Vec<&str> = said.lines().filter(|l| l.contains(" /dev/nvidia0 ")).collect();
    // The GPU has two names, and is one of all.
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(
        lines[0].contains("nvidia.yaml:17:13: devices[0]."),
        "the first place is named: {lines:?}"
    );
    assert!(
        lines[0].ends_with("/dev/nvidia0 does not exist on this host (also in 2 other places)"),
        "{lines:?}"
    );
    let about = |what: &str| said.lines().filter(|l| l.contains(what)).count();
    assert_eq!((about("libcuda.so.570"), about("/dev/nvidia7 ")), (1, 1), "{said}");
    let counted = String::from_utf8(output.stderr).unwrap();
    let lines = said.lines().count();
    assert!(counted.ends_with(&format!("; {lines} problems\n")), "{counted}");
}

#[test]
fn where_no_specification_is_there_is_nothing_to_check() {
    let empty = tempfile::tempdir().unwrap();
    let place = empty.path().to_str().unwrap();
    for arguments in [
        &["cdi", "validate", "--spec-dir", place][..],
        &["cdi", "validate", place],
    ] {
        let output = program(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(3), 1), "{said}");
        assert!(
            said.contains(&format!(
                "{place}: no CDI specification found; tranche cdi refresh writes one"
            )),
            "{said}"
        );
        let json = program(arguments).arg("--json").output().unwrap();
        assert_eq!(json.status.code(), Some(3));
        let report: Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(report["files"], 0);
    }
    // A file that cannot be read is a problem, and not nothing.
    fs::write(empty.path().join("x.yaml"), "[").unwrap();
    let output = program(&["cdi", "validate", "--spec-dir", place]).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
}

#[test]
fn a_file_that_another_directory_hides_is_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let (first, later) = (directory.path().join("etc"), directory.path().join("run"));
    for dir in [&first, &later] {
        let output = program(&["cdi", "generate", "--inventory=sim:hgx-h200", "--output"])
            .arg(dir.join("nvidia.yaml"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
    let validate = |more: &[&str]| {
        let mut command = program(&["cdi", "validate", "--for-other-host"]);
        command.arg("--spec-dir").arg(&first).arg("--spec-dir").arg(&later);
        command.args(more).output().unwrap()
    };
    let output = validate(&[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.lines().count()), (Some(0), 2), "{said}");
    let (first, later) = (first.join("nvidia.yaml"), later.join("nvidia.yaml"));
    let line = said.lines().next().unwrap();
    assert!(
        line.starts_with(&format!("{}: engines ignore nvidia.com/gpu=0, ", first.display()))
            && line.ends_with(&format!(" and 10 more, because {} takes precedence", later.display())),
        "{line}"
    );
    let all: Value = serde_json::from_slice(&validate(&["--json"]).stdout).unwrap();
    assert_eq!(all["shadowed"].as_array().unwrap().len(), 18, "{all}");
}

#[test]
fn a_file_beside_another_of_the_same_devices_is_reported_when_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let write_in = |spec_dir: &Path, inventory: &str, name: &str| {
        let output = program(&["cdi", "generate", inventory, "--output"])
            .arg(directory.path().join(name))
            .env("TRANCHE_SPEC_DIR", spec_dir)
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let write = |inventory: &str, name: &str| write_in(directory.path(), inventory, name);
    let warned = |said: &str| said.matches("engines ignore them in every file").count();
    // Neither a new file, nor one that takes the place of its older self, nor one of other devices.
    for (inventory, name) in [
        ("--inventory=sim:t4x2", "nvidia.yaml"),
        ("--inventory=sim:t4x2", "nvidia.yaml"),
    ] {
        let (code, said) = write(inventory, name);
        assert_eq!((code, warned(&said)), (Some(0), 0), "{said}");
    }
    fs::write(
        directory.path().join("other.json"),
        r#"{"cdiVersion":"0.5.0","kind":"other.org/nic","devices":[{"name":"0","containerEdits":{"env":["A=b"]}}]}"#,
    )
    .unwrap();
    let (_, said) = write("--inventory=sim:t4x2", "nvidia.yaml");
    assert_eq!(warned(&said), 0, "{said}");
    let (code, said) = write("--inventory=sim:t4x2", "tranche.yaml");
    assert_eq!((code, warned(&said)), (Some(0), 1), "{said}");
    assert!(
        said.contains("/tranche.yaml: defines devices that are also in ")
            && said.contains("/nvidia.yaml; engines ")
            && said.contains("lost: nvidia.com/gpu=0, nvidia.com/gpu=1, "),
        "{said}"
    );
    // Where no engine looks, files do not affect each other.
    let (code, said) = write_in(Path::new("/etc/cdi"), "--inventory=sim:t4x2", "tranche.yaml");
    assert_eq!((code, warned(&said)), (Some(0), 0), "{said}");
}

/// A directory with a specification that was generated from a saved inventory.
struct Written {
    directory: tempfile::TempDir,
}

impl Written {
    fn new(simulation: &str, more: &[&str]) -> Self {
        let written = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        let inventory = format!("--inventory=sim:{simulation}");
        let output = program(&["inventory", &inventory]).output().unwrap();
        fs::write(written.at("inventory.json"), output.stdout).unwrap();
        let mut command = written.command("generate", &["--hook-path=/usr/bin/tranche-oci", "--output"]);
        let output = command.arg(written.at("nvidia.yaml")).args(more).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        written
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Changes a file by its text.
    fn edit(&self, name: &str, change: impl FnOnce(String) -> String) {
        let before = fs::read_to_string(self.at(name)).unwrap();
        let after = change(before.clone());
        assert_ne!(before, after, "nothing was changed");
        fs::write(self.at(name), after).unwrap();
    }

    /// Changes the saved inventory.
    fn change(&self, change: impl FnOnce(&mut Value)) {
        self.edit("inventory.json", |text| {
            let mut inventory = serde_json::from_str(&text).unwrap();
            change(&mut inventory);
            inventory.to_string()
        });
    }

    fn command(&self, verb: &str, arguments: &[&str]) -> Command {
        let mut command = program(&["cdi", verb, "--inventory"]);
        command.arg(self.at("inventory.json")).args(arguments);
        command
    }

    /// The exit code, the findings and the notes of a check against the saved inventory.
    fn validate(&self, more: &[&str]) -> (Option<i32>, String, String) {
        let mut command = self.command("validate", more);
        let output = command.arg(self.at("nvidia.yaml")).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }
}

#[test]
fn a_specification_of_the_same_host_is_not_stale() {
    for simulation in ["rtx4090", "dgx-a100-mig", "hgx-h200", "gb200", "t4x2"] {
        // Options say what is written; they are neither host nor policy.
        for more in [
            &[][..],
            &["--vendor=x.org", "--device-id=0", "--cdi-version=0.5"],
            &["--mode=management"],
        ] {
            let written = Written::new(simulation, more);
            let (code, findings, notes) = written.validate(&[]);
            assert_eq!((code, findings.as_str()), (Some(0), ""), "{simulation}: {notes}");
            assert!(!notes.contains("not checked"), "{simulation}: {notes}");
        }
    }
    // What people read, and what a container cannot notice.
    let written = Written::new("dgx-a100-mig", &[]);
    written.change(|inventory| {
        inventory["warnings"] = json!([{"object": "NVML", "text": "was slow"}]);
        inventory["absent"] = json!([]);
        inventory["platform"]["kernel"] = json!("6.99.0");
        inventory["gpus"][0]["compute_mode"] = json!("exclusive_process");
        for control in inventory["nodes"]["control"].as_array_mut().unwrap() {
            control["node"]["major"] = json!(511);
        }
    });
    assert_eq!(written.validate(&[]).0, Some(0));
}

#[test]
fn a_specification_of_a_host_that_has_changed_is_stale() {
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 3] = [
        ("driver", |inventory| {
            inventory["driver"]["version"] = json!("580.65.06")
        }),
        ("MIG layout", |inventory| {
            let gpus = inventory["gpus"].as_array_mut().unwrap();
            let gpu = gpus.iter_mut().find(|gpu| gpu["mig_devices"] != json!([])).unwrap();
            gpu["mig_devices"].as_array_mut().unwrap().pop();
        }),
        ("node", |inventory| inventory["gpus"][0]["node"]["gid"] = json!(44)),
    ];
    for (what, change) in changes {
        let written = Written::new("dgx-a100-mig", &[]);
        written.change(change);
        let (code, findings, _) = written.validate(&[]);
        let file = written.at("nvidia.yaml").display().to_string();
        assert_eq!((code, findings.lines().count()), (Some(4), 1), "{what}: {findings}");
        assert!(
            findings.starts_with(&format!("{file}: stale: the driver, ")),
            "{what}: {findings}"
        );
        let remedy = format!("; run tranche cdi generate again, with --output {file} and the ");
        assert!(findings.contains(&remedy), "{what}: {findings}");
        let json = written.command("validate", &["--json"]).arg(&file).output().unwrap();
        let report: Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(report["problems"][0]["lost"], json!([]), "{report}");
        // The remedy helps.
        let mut again = written.command("generate", &["--hook-path=/usr/bin/tranche-oci", "--output", &file]);
        assert!(again.status().unwrap().success());
        assert_eq!(written.validate(&[]).0, Some(0), "{what}");
    }
}

#[test]
fn a_specification_of_another_policy_is_stale() {
    let directory = tempfile::tempdir().unwrap();
    let policy = |name: &str, text: &str| {
        let file = directory.path().join(name);
        fs::write(&file, text).unwrap();
        format!("--config={}", file.display())
    };
    let shares = |replicas: u32| {
        format!(
            "version: v1\nsharing:\n  timeSlicing:\n    renameByDefault: true\n    resources:\n    - name: nvidia.com/gpu\n      \
             replicas: {replicas}\n"
        )
    };
    let two = policy("two.yaml", &shares(2));
    let same = policy("same.yaml", &format!("# The same, with a comment.\n{}", shares(2)));
    let three = policy("three.yaml", &shares(3));
    let nothing = policy("nothing.yaml", "version: v1\n");
    let written = Written::new("t4x2", &[&two]);
    assert!(written.at("nvidia-gpu.shared.yaml").exists());
    for (config, is_stale) in [
        (Some(&two), false),
        (Some(&same), false),
        (Some(&three), true),
        (None, true),
    ] {
        let config: Vec<&str> = config.iter().map(|c| c.as_str()).collect();
        let beside = written.at("nvidia-gpu.shared.yaml").display().to_string();
        let (code, findings, notes) = written.validate(&[&config[..], &[beside.as_str()]].concat());
        let expected = if is_stale { (Some(4), 2) } else { (Some(0), 0) };
        assert_eq!(
            (code, findings.lines().count()),
            expected,
            "{config:?}: {findings}{notes}"
        );
        for line in findings.lines() {
            // One run writes both files.
            let remedy = format!("with --output {} and", written.at("nvidia.yaml").display());
            assert!(
                line.contains(": stale: the policy is not ") && line.contains(&remedy),
                "{line}"
            );
        }
    }
    // No policy, and one that shares nothing, are the same.
    let written = Written::new("t4x2", &[]);
    assert_eq!(written.validate(&[&nothing]).0, Some(0));
    assert_eq!(written.validate(&[&two]).0, Some(4));
    // These devices cannot be shared.
    let written = Written::new("hgx-h200", &["--mode=gds"]);
    assert_eq!(written.validate(&[&two]).0, Some(0));
}

#[test]
fn what_cannot_be_compared_is_not_stale() {
    let changed = || {
        let written = Written::new("dgx-a100-mig", &[]);
        written.change(|inventory| inventory["driver"]["version"] = json!("580.65.06"));
        assert_eq!(written.validate(&[]).0, Some(4));
        written
    };
    let without = |text: String, mark: &str| {
        let lines = text.lines().filter(|line| !line.contains(mark));
        lines.map(|line| format!("{line}\n")).collect::<String>()
    };
    // An older tranche wrote no digest; other programs have headers of their own.
    let written = changed();
    written.edit("nvidia.yaml", |text| without(text, "# Digest"));
    assert_eq!(written.validate(&[]).0, Some(0));
    let written = changed();
    written.edit("nvidia.yaml", |text| {
        text.replace("# Made by tranche", "# Made by hand with tranche")
    });
    assert_eq!(written.validate(&[]).0, Some(0));
    // A digest of another version is made in another way.
    let written = changed();
    written.edit("nvidia.yaml", |text| {
        text.replace("# Made by tranche ", "# Made by tranche 9.")
    });
    let (code, _, notes) = written.validate(&[]);
    assert!(
        code == Some(0) && notes.contains("nvidia.yaml: not checked whether it is stale: another version"),
        "{notes}"
    );
    // What is missing today may be back tomorrow.
    let written = changed();
    written.change(|inventory| inventory["degraded"] = json!([{"what": "nvml", "why": "was silent"}]));
    let (code, _, notes) = written.validate(&[]);
    assert!(
        code == Some(0) && notes.contains("not checked whether specifications are stale: the host"),
        "{notes}"
    );
    assert!(notes.contains("NVML was silent"), "{notes}");
    // Another search finds other files.
    let written = changed();
    written.edit("nvidia.yaml", |text| {
        text.replace("\ncdiVersion", "\n# Discovered with --compat32\ncdiVersion")
    });
    let root = tempfile::tempdir().unwrap();
    let mut command = program(&["cdi", "validate", "--no-nvml", "--root"]);
    let output = command
        .arg(root.path())
        .arg(written.at("nvidia.yaml"))
        .output()
        .unwrap();
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success() && notes.contains("it was generated with --compat32; give"),
        "{notes}"
    );
    // It is for another machine.
    let written = changed();
    let mut command = program(&["cdi", "validate", "--for-other-host"]);
    assert!(command.arg(written.at("nvidia.yaml")).status().unwrap().success());
    // After a transformation it is no longer what generate writes.
    let written = changed();
    let mut command = program(&["cdi", "transform", "root", "--to=/host", "--input"]);
    let output = command.arg(written.at("nvidia.yaml")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("---\n# Made by tranche ") && !text.contains("# Digest"),
        "{text}"
    );
    // What was named must be there.
    let written = changed();
    let missing = format!("--config={}", written.at("missing.yaml").display());
    let (code, _, said) = written.validate(&[&missing]);
    assert!(code == Some(1) && said.contains("missing.yaml: not found"), "{said}");
}
