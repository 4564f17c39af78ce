//! `tranche doctor` on each test host, and what `--fix` does.

use crate::support::{bless, fake_host, skip};
use crate::{Said, tranche};
use std::fs;
use std::path::{Path, PathBuf};

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
