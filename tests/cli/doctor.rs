//! `tranche doctor` on each test host, and what `--fix` does.

use crate::support::{bless, fake_host, skip};
use crate::{Said, tranche};
use std::fs;
use std::path::{Path, PathBuf};

mod engine_files;
mod faults;
mod place;
mod reasons;
mod rights;
mod starts;

/// Runs doctor on the host in `root`, with specifications and state below `top`.
fn doctor(root: &Path, top: &Path, options: &[&str]) -> Said {
    let place = [
        format!("--root={}", root.display()),
        format!("--spec-dir={}", top.join("cdi").display()),
        format!("--state-dir={}", top.join("state").display()),
    ];
    let place = place.iter().map(String::as_str);
    let words: Vec<&str> = ["doctor"]
        .into_iter()
        .chain(options.iter().copied())
        .chain(place)
        .collect();
    tranche(&words)
}

#[test]
fn each_test_host_gets_the_page_that_is_kept() {
    let mut differ = Vec::new();
    for name in fake_host::names().unwrap() {
        let top = tempfile::tempdir().unwrap();
        let host = fake_host::build(&name, &top.path().join("host")).unwrap();
        if let Some(missing) = host.not_made.first() {
            skip::not_run("doctor::each_test_host_gets_the_page_that_is_kept", &missing.why);
            return;
        }
        let said = doctor(&host.root, top.path(), &["--all"]);
        // Every host lacks a specification, or a driver.
        assert_eq!(said.code, Some(4), "{name}: {said:?}");
        let page = said.out.replace(&top.path().display().to_string(), "TOP");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/doctor/{name}.txt"));
        if !bless::is_expected(&file, &page) {
            differ.push(format!("{}\n{page}", file.display()));
        }
    }
    assert!(
        differ.is_empty(),
        "make bless writes these anew; read the difference:\n{}",
        differ.join("\n")
    );
}

#[test]
fn json_has_every_check_with_its_result() {
    let top = tempfile::tempdir().unwrap();
    let host = fake_host::build("no-driver", &top.path().join("host")).unwrap();
    let said = doctor(&host.root, top.path(), &["--json"]);
    assert_eq!(said.code, Some(4), "{said:?}");
    let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let driver = checks.iter().find(|check| check["check"] == "driver").unwrap();
    assert_eq!(driver["result"], "wrong");
    assert_eq!(driver["found"], "no driver was found");
    assert_eq!(report["wrong"], 1, "{report}");
    assert!(checks.iter().any(|check| check["result"] == "skipped"));
}

#[test]
fn one_check_is_printed_alone_and_the_exit_code_is_its_own() {
    let top = tempfile::tempdir().unwrap();
    let host = fake_host::build("no-driver", &top.path().join("host")).unwrap();
    let said = doctor(&host.root, top.path(), &["--check", "suspended work"]);
    assert_eq!(
        (said.code, said.out.as_str()),
        (
            Some(0),
            "0 results with something to do, 1 good, 0 skipped; --all shows them\n"
        )
    );
    let said = doctor(
        &host.root,
        top.path(),
        &["--check", "suspended work", "--check", "driver"],
    );
    assert_eq!(said.code, Some(4), "{said:?}");
    assert!(
        said.out.starts_with("wrong    driver: no driver was found\n"),
        "{said:?}"
    );
    let said = doctor(&host.root, top.path(), &["--check", "no such check"]);
    assert!(said.err.contains("possible values: driver, modules"), "{said:?}");
}

#[test]
fn selinux_that_keeps_containers_from_a_pipe_directory() {
    const NAME: &str = "doctor::selinux_that_keeps_containers_from_a_pipe_directory";
    let top = tempfile::tempdir().unwrap();
    let host = fake_host::build("hgx-h200", &top.path().join("host")).unwrap();
    if let Some(missing) = host.not_made.first() {
        skip::not_run(NAME, &missing.why);
        return;
    }
    let put = |path: &str, text: &str| {
        let path = host.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("sys/fs/selinux/enforce", "1");
    put("sys/fs/selinux/booleans/container_use_devices", "1 1");
    put("etc/selinux/config", "SELINUXTYPE=targeted\n");
    put(
        "etc/selinux/targeted/contexts/files/file_contexts",
        "/run/tranche/mps(/.*)? system_u:object_r:tranche_mps_run_t:s0\n",
    );
    let pipes = top.path().join("state/mps");
    fs::create_dir_all(&pipes).unwrap();
    let label = |context: &str| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&pipes, "security.selinux", context.as_bytes(), flags)
    };
    if let Err(error) = label("system_u:object_r:var_run_t:s0\0") {
        skip::not_run(NAME, &format!("a file here cannot have an SELinux context: {error}"));
        return;
    }
    let config = top.path().join("config.yaml");
    let policy = "version: v1\nsharing:\n  mps:\n    resources:\n    - {name: nvidia.com/gpu, replicas: 2}\n";
    fs::write(&config, policy).unwrap();
    let config = format!("--config={}", config.display());
    let result = || {
        let said = doctor(&host.root, top.path(), &["--json", &config]);
        let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        let checks = report["checks"].as_array().unwrap().clone();
        checks.into_iter().find(|check| check["check"] == "SELinux").unwrap()
    };
    let found = result();
    assert_eq!(found["result"], "wrong", "{found}");
    assert_eq!(found["fix"], "restorecon -RF /run/tranche", "{found}");
    label("system_u:object_r:tranche_mps_run_t:s0\0").unwrap();
    assert_eq!(result()["result"], "good");
    // A policy without MPS needs no label.
    label("system_u:object_r:var_run_t:s0\0").unwrap();
    fs::write(
        config.trim_start_matches("--config="),
        policy.replace("mps:", "timeSlicing:"),
    )
    .unwrap();
    assert_eq!(result()["result"], "good");
}

/// A host on this machine, by the options that name its parts.
struct Place {
    top: tempfile::TempDir,
}

impl Place {
    fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    fn run(&self, options: &[&str]) -> Said {
        let root = self.at("host").display().to_string();
        let words = [
            format!("--driver-root={root}"),
            format!("--dev-root={root}"),
            format!("--proc-root={root}/proc"),
            format!("--sys-root={root}/sys"),
            format!("--spec-dir={}", self.at("cdi").display()),
            format!("--state-dir={}", self.at("state").display()),
        ];
        let words = words.iter().map(String::as_str);
        let words: Vec<&str> = ["doctor", "--json"]
            .into_iter()
            .chain(options.iter().copied())
            .chain(words)
            .collect();
        tranche(&words)
    }
}

/// The result of a check that found something, or that did not.
fn result_of(said: &Said, check: &str) -> String {
    let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let one = checks.iter().find(|one| one["check"] == check).unwrap();
    one["result"].as_str().unwrap().to_owned()
}

#[test]
fn fix_makes_nodes_and_the_specification() {
    let place = Place {
        top: tempfile::tempdir().unwrap(),
    };
    let host = fake_host::build("t4x2-old-driver", &place.at("host")).unwrap();
    if let Some(missing) = host.not_made.first() {
        skip::not_run("doctor::fix_makes_nodes_and_the_specification", &missing.why);
        return;
    }
    let node = place.at("host/dev/nvidia1");
    fs::remove_file(&node).unwrap();
    let said = place.run(&[]);
    assert_eq!(said.code, Some(4), "{said:?}");
    assert_eq!(result_of(&said, "device nodes"), "wrong");
    assert_eq!(result_of(&said, "specifications"), "wrong");
    assert!(
        !node.exists() && !place.at("cdi").exists(),
        "without --fix nothing is changed"
    );

    let said = place.run(&["--fix"]);
    assert!(
        said.err.contains("running tranche system create-device-nodes"),
        "{said:?}"
    );
    assert!(node.exists(), "{said:?}");
    assert!(place.at("cdi/tranche.yaml").exists(), "{said:?}");
    assert_eq!(result_of(&said, "device nodes"), "good");
}

#[test]
fn another_machine_is_not_corrected() {
    let top = tempfile::tempdir().unwrap();
    let host = fake_host::build("no-driver", &top.path().join("host")).unwrap();
    let said = doctor(&host.root, top.path(), &["--fix"]);
    assert_eq!((said.code, said.err.lines().count()), (Some(2), 1), "{said:?}");
}
