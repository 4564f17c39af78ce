//! The specification of each test host, byte for byte: `cdi-specs/`. They are examples to read as well.
//!
//! `make bless` writes them anew: see [`crate::support::bless`].

use crate::support::{bless, fake_host, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What each file of `cdi-specs/` is made with, besides its host.
const OTHERS: [(&str, &str, &[&str]); 8] = [
    (
        "driver-container",
        "driver-container",
        &["--driver-root=/run/nvidia/driver"],
    ),
    ("dgx-a100-mig.management", "dgx-a100-mig", &["--mode=management"]),
    ("hgx-h200.gds", "hgx-h200", &["--mode=gds"]),
    ("hgx-h200.imex", "hgx-h200", &["--mode=imex"]),
    ("hgx-h200.nvswitch", "hgx-h200", &["--mode=nvswitch"]),
    (
        "workstation-rtx4090.cdi-0.5",
        "workstation-rtx4090",
        &["--cdi-version=0.5"],
    ),
    ("workstation-rtx4090.no-hooks", "workstation-rtx4090", &["--no-hooks"]),
    // With the policy beside it: one GPU by turns, one by MPS in unequal shares.
    (
        "t4x2-old-driver.shares",
        "t4x2-old-driver",
        &["--config=docs/examples/config.yaml"],
    ),
];

fn specs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("cdi-specs")
}

fn tranche(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tranche"))
        .args(arguments)
        .env_clear()
        .output()
        .unwrap()
}

fn generate(root: &Path, more: &[&str]) -> Output {
    let root = format!("--root={}", root.display());
    let mut arguments = vec!["cdi", "generate", root.as_str()];
    // The default is the program beside this one, which is elsewhere on every machine.
    if !more.contains(&"--no-hooks") {
        arguments.push("--hook-path=/usr/bin/tranche-oci");
    }
    arguments.extend(more);
    tranche(&arguments)
}

#[test]
fn each_host_has_its_specification() {
    let hosts = fake_host::names().unwrap();
    let plain = hosts
        .iter()
        .filter(|h| *h != "driver-container")
        .map(|h| (h.as_str(), h.as_str(), &[] as &[&str]));
    let mut wrong = Vec::new();
    for (name, host, more) in plain.chain(OTHERS) {
        let directory = tempfile::tempdir().unwrap();
        let host = fake_host::build(host, directory.path()).unwrap();
        if let Some(missing) = host.not_made.first() {
            return skip::not_run("golden", &missing.why);
        }
        let made = generate(&host.root, more);
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        let text = String::from_utf8(made.stdout).unwrap();
        let file = specs().join(format!("{name}.yaml"));
        match made.status.code() {
            Some(0) => {}
            // What is left of a host with a lost GPU is printed, and is no success.
            Some(1) if name == "l4-one-lost" => assert!(said.contains("not complete: gpu 2"), "{said}"),
            // A host that has nothing has no file, and says so in one line. A driver without a GPU is a failure.
            Some(1 | 3) => {
                assert!(
                    !file.exists() && text.is_empty() && said.lines().count() >= 1,
                    "{name}: {said}"
                );
                continue;
            }
            code => panic!("{name}: {code:?}: {said}"),
        }
        let again = String::from_utf8(generate(&host.root, more).stdout).unwrap();
        assert_eq!(text, again, "{name}: twice the same host, twice the same bytes");
        if !bless::is_expected(&file, &text) {
            wrong.push(name.to_owned());
        }
    }
    assert_eq!(wrong, [""; 0], "not as in cdi-specs/; `make bless` writes them anew");
}

#[test]
fn each_passes_our_own_check_and_compose_s_splitting() {
    let mut seen = 0;
    for entry in fs::read_dir(specs()).unwrap() {
        let file = entry.unwrap().path();
        let name = file.display().to_string();
        let out = tranche(&["cdi", "validate", "--for-other-host", &name]);
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stdout));
        let spec = tranche_plan::cdi::parse::spec(&fs::read(&file).unwrap()).unwrap();
        for device in &spec.devices {
            let whole = format!("{}={}", spec.kind, device.name);
            // docker compose cuts at `::`, and takes the rest for a path and permissions.
            assert!(
                !whole.contains("::") && whole.parse::<tranche_core::types::QualifiedName>().is_ok(),
                "{whole}"
            );
        }
        // CUDA's own default for the pipe of MPS is a path in a container.
        let text = fs::read_to_string(&file).unwrap().replace("/tmp/nvidia-mps", "");
        assert!(!text.contains("/tmp/"), "{name}: a path of the machine that made it");
        seen += 1;
    }
    assert!(seen > 10, "{seen} files");
}
