//! What `tranche cdi validate` reports, in how many lines, and with which exit code.

use serde_json::Value;
use std::fs;
use std::process::Command;

fn tranche(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tranche"));
    command.args(arguments).env_clear();
    command
}

#[test]
fn validate_finds_what_a_specification_points_at() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("x.yaml");
    let validate = |text: &str| {
        fs::write(&file, text).unwrap();
        let output = tranche(&["cdi", "validate"]).arg(&file).output().unwrap();
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
    assert!(tranche(&arguments).arg(&file).status().unwrap().success());
    let output = tranche(&["cdi", "validate"]).arg(&file).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(4), "{said}");
    let lines: Vec<&str> = said.lines().filter(|l| l.contains(" /dev/nvidia0 ")).collect();
    // The GPU has two names, and is one of all.
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(
        lines[0].contains("nvidia.yaml:13:13: devices[0]."),
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
        let output = tranche(arguments).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(3), 1), "{said}");
        assert!(
            said.contains(&format!(
                "{place}: no CDI specification found; tranche cdi generate --output"
            )),
            "{said}"
        );
        let json = tranche(arguments).arg("--json").output().unwrap();
        assert_eq!(json.status.code(), Some(3));
        let report: Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(report["files"], 0);
    }
    // A file that cannot be read is a problem, and not nothing.
    fs::write(empty.path().join("x.yaml"), "[").unwrap();
    let output = tranche(&["cdi", "validate", "--spec-dir", place]).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
}

#[test]
fn a_file_beside_another_of_the_same_devices_is_reported_when_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let write = |inventory: &str, name: &str| {
        let output = tranche(&["cdi", "generate", inventory, "--output"])
            .arg(directory.path().join(name))
            .output()
            .unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
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
}
