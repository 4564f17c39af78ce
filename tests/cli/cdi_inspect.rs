//! What the `tranche cdi` verbs that read specifications make of directories.

use crate::cdi_cli::cdi;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Two directories as an engine reads them, with a broken file of another vendor.
fn directories() -> (tempfile::TempDir, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    for (inventory, output, more) in [
        ("sim:t4x2", "etc/nvidia.yaml", &["--no-hooks"][..]),
        ("sim:t4x2", "run/one.yaml", &["--device-id=0"]),
        (
            "sim:rtx4090",
            "run/old.json",
            &["--cdi-version=0.5", "--vendor=old.org"],
        ),
    ] {
        let output = at(output);
        let said = cdi(&[&["generate", "--inventory", inventory, "--output", &output], more].concat());
        assert_eq!(said.code, Some(0), "{}", said.err);
    }
    fs::write(
        dir.path().join("etc/other.yaml"),
        "cdiVersion: 0.5.0\nkind: other.org/nic\ndevices:\n- name: eth\n  containerEdit: {}\n",
    )
    .unwrap();
    let dirs = vec!["--spec-dir".to_owned(), at("etc"), "--spec-dir".to_owned(), at("run")];
    (dir, dirs)
}

fn with<'a>(first: &[&'a str], dirs: &'a [String]) -> Vec<&'a str> {
    first.iter().copied().chain(dirs.iter().map(String::as_str)).collect()
}

#[test]
fn directories_are_read_as_engines_read_them() {
    let (_dir, dirs) = directories();
    let list = cdi(&with(&["list"], &dirs));
    assert_eq!(list.code, Some(0));
    assert!(
        list.out.contains("nvidia.com/gpu=0\n") && list.out.contains("old.org/gpu=all\n"),
        "{}",
        list.out
    );
    assert!(
        list.err.contains("other.yaml:5:3: ") && list.err.contains("lost: other.org/nic=eth"),
        "{}",
        list.err
    );
    let rows: Value = serde_json::from_str(&cdi(&with(&["list", "--json"], &dirs)).out).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), list.out.lines().count());

    let check = cdi(&with(&["validate", "--for-other-host"], &dirs));
    assert_eq!(check.code, Some(4));
    assert_eq!(check.out.lines().count(), 1, "{}", check.out);
    assert!(check.err.contains("engines ignore nvidia.com/gpu=0, "), "{}", check.err);
    let report: Value =
        serde_json::from_str(&cdi(&with(&["validate", "--for-other-host", "--json"], &dirs)).out).unwrap();
    assert_eq!(report["problems"][0]["at"], json!({"line": 5, "column": 3}));
    let etc = Path::new(&dirs[1]);
    assert_eq!(
        cdi(&[
            "validate",
            "--for-other-host",
            etc.join("nvidia.yaml").to_str().unwrap()
        ])
        .code,
        Some(0)
    );
    assert_eq!(cdi(&["validate", etc.join("missing").to_str().unwrap()]).code, Some(2));
}

#[test]
fn a_name_without_its_kind_is_completed() {
    let (_dir, dirs) = directories();
    for (name, wanted) in [
        (
            "0",
            "0: is not a complete CDI name; expected one of nvidia.com/gpu=0, old.org/gpu=0\n",
        ),
        (
            "77",
            "77: is not a complete CDI name; write it as KIND=NAME, for example nvidia.com/gpu=0\n",
        ),
    ] {
        let said = cdi(&with(&["inspect", name], &dirs));
        assert_eq!((said.code, said.err), (Some(2), format!("tranche: {wanted}")));
    }
}

#[test]
fn inspect_tells_what_a_container_would_get() {
    let (dir, dirs) = directories();
    let zero = cdi(&with(&["inspect", "nvidia.com/gpu=0"], &dirs));
    assert_eq!(zero.code, Some(0), "{}", zero.err);
    for part in [
        "device    nvidia.com/gpu=0\n",
        "run/one.yaml (declares CDI 0.5.0, needs 0.5.0)",
        "env       NVIDIA_VISIBLE_DEVICES=void\n",
        "node      /dev/nvidia0 ",
        "hook      createContainer ",
        "            --driver-version\n",
        "MISSING ON THE HOST",
    ] {
        assert!(zero.out.contains(part), "{part}\n{}", zero.out);
    }
    let json: Value = serde_json::from_str(&cdi(&with(&["inspect", "--json", "nvidia.com/gpu=0"], &dirs)).out).unwrap();
    assert_eq!(json["devices"][0]["minimumVersion"], "0.5.0");

    // What a cap left out stands in the file; JSON has no place for it.
    let yaml = dir.path().join("run/old2.yaml").display().to_string();
    let capped = [
        "generate",
        "--inventory=sim:rtx4090",
        "--cdi-version=0.5",
        "--class=capped",
        "--output",
        &yaml,
    ];
    assert_eq!(cdi(&capped).code, Some(0));
    let capped = cdi(&with(&["inspect", "nvidia.com/capped=0"], &dirs)).out;
    assert!(capped.contains("left out  additional groups"), "{capped}");

    // Each error that lists what there is has at most five, the nearest first.
    let many = [
        "generate",
        "--inventory=sim:hgx-h200",
        "--class=many",
        "--output",
        &yaml,
    ];
    assert_eq!(cdi(&many).code, Some(0));
    let said = cdi(&with(&["inspect", "nvidia.com/many=66"], &dirs)).err;
    let (_, list) = said.split_once("expected one of ").unwrap();
    assert_eq!(list.matches("nvidia.com/many=").count(), 5, "{said}");
    assert!(
        list.starts_with("nvidia.com/many=6, ") && list.contains(" more"),
        "{said}"
    );

    for (name, part) in [
        ("nvidia.com/gpu=7", "expected one of nvidia.com/gpu=0, "),
        ("no.org/x=1", "no file in "),
        ("other.org/nic=eth", "is lost; "),
    ] {
        let said = cdi(&with(&["inspect", name], &dirs));
        assert_eq!(said.code, Some(2));
        assert!(said.err.contains(part), "{}", said.err);
    }
}

#[test]
fn a_container_specification_is_edited_as_an_engine_does() {
    let dir = tempfile::tempdir().unwrap();
    let spec = "cdiVersion: 0.3.0\nkind: a.org/box\ndevices:\n- name: null-device\n  containerEdits:\n    deviceNodes:\n    - path: /dev/null\n";
    fs::write(dir.path().join("a.yaml"), spec).unwrap();
    let config = dir.path().join("config.json");
    fs::write(
        &config,
        json!({"ociVersion": "1.0.2", "x": 1.10, "process": {"env": []}}).to_string(),
    )
    .unwrap();
    let (dirs, config) = (dir.path().to_str().unwrap(), config.to_str().unwrap());
    let said = cdi(&["inspect", "a.org/box=null-device", "--spec-dir", dirs, "--oci", config]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let edited: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(edited["linux"]["devices"][0]["major"], 1);
    assert_eq!(edited["linux"]["devices"][0]["minor"], 3);
    assert_eq!(edited["ociVersion"], "1.0.2");
}
