//! `tranche cdi refresh`: what is on the disk after it, and that it changes nothing without need.

use crate::support::skip;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tranche_plan::host_file::{HostFile, HostFileError, SourceKind};
use tranche_plan::policy::{AcceptEnvironment, RuntimeSettings};

mod bad_places;
mod changed;
mod degraded;
mod driver_program;
mod killed;
mod last_policy;
mod needed;
mod others;
mod sources;
mod together;
mod watched;

/// A state directory, a directory of specifications and a policy.
struct Bed {
    directory: tempfile::TempDir,
}

/// What a program said, and its exit code.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

/// GPU 0 and 1 in four shares each, under a kind of their own.
const RENAMED: &str = "  timeSlicing:\n    renameByDefault: true\n    resources:\n    - {name: nvidia.com/gpu, devices: [0, 1], replicas: 4}\n";

impl Bed {
    fn new() -> Self {
        let bed = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        bed.share("");
        bed
    }

    fn at(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn spec(&self, name: &str) -> PathBuf {
        self.at("cdi").join(name)
    }

    fn state(&self) -> PathBuf {
        self.at("state")
    }

    /// Writes a policy with this section `sharing`, which keeps files of this machine out.
    fn share(&self, sharing: &str) {
        let dirs = format!("[{}, {}]", self.at("etc").display(), self.at("cdi").display());
        let sharing = if sharing.is_empty() { "  {}\n" } else { sharing };
        let text = format!("version: v1\nsharing:\n{sharing}runtime:\n  specDirs: {dirs}\n");
        fs::write(self.at("config.yaml"), text).unwrap();
    }

    fn command(&self, inventory: &str, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tranche"));
        command.args(["cdi", "refresh"]).args(more).env_clear();
        for (option, path) in [("state-dir", "state"), ("output-dir", "cdi"), ("config", "config.yaml")] {
            command.arg(format!("--{option}={}", self.at(path).display()));
        }
        if !inventory.is_empty() {
            command.arg(format!("--inventory={inventory}"));
        }
        command
    }

    /// Refreshes for this inventory.
    fn refresh(&self, inventory: &str, more: &[&str]) -> Said {
        said(&self.command(inventory, more).output().unwrap())
    }

    /// Refreshes successfully, and returns the one line.
    fn refreshed(&self, inventory: &str) -> String {
        let said = self.refresh(inventory, &[]);
        assert_eq!(
            (said.code, said.err.lines().count(), said.out.as_str()),
            (Some(0), 1, ""),
            "{said:?}"
        );
        said.err
    }

    /// Saves an inventory with a change, and returns its file.
    fn inventory(&self, simulation: &str, change: impl FnOnce(&mut Value)) -> String {
        let output = Command::new(env!("CARGO_BIN_EXE_tranche"))
            .args(["inventory", &format!("--inventory=sim:{simulation}")])
            .env_clear()
            .output()
            .unwrap();
        let mut inventory = serde_json::from_slice(&output.stdout).unwrap();
        change(&mut inventory);
        let file = self.at(&format!("inventory-{simulation}.json"));
        fs::write(&file, inventory.to_string()).unwrap();
        file.to_str().unwrap().to_owned()
    }

    fn host_file(&self) -> HostFile {
        HostFile::read(&self.state()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Every file of the two directories with its text, but for the lock and what the refresh saw.
    fn files(&self) -> BTreeMap<String, String> {
        let dirs = ["cdi", "state"].map(|dir| fs::read_dir(self.at(dir)).into_iter().flatten());
        let paths = dirs.into_iter().flatten().map(|entry| entry.unwrap().path());
        let files = paths.filter(|path| !path.is_dir()).map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        });
        files
            .filter(|(name, _)| name != "refresh.lock" && name != "refresh.json")
            .collect()
    }

    fn names(&self) -> String {
        self.files().into_keys().collect::<Vec<_>>().join(" ")
    }

    /// The number of each file, which is another one after a replacement.
    fn inodes(&self) -> Vec<u64> {
        let paths = [
            self.spec("tranche.yaml"),
            self.spec("tranche-gpu.shared.yaml"),
            self.state().join("host.json"),
        ];
        paths.iter().map(|path| fs::metadata(path).unwrap().ino()).collect()
    }
}

fn said(output: &Output) -> Said {
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout.clone()).unwrap(),
        err: String::from_utf8(output.stderr.clone()).unwrap(),
    }
}

#[test]
fn the_files_are_written_once_and_stay_until_something_changes() {
    let bed = Bed::new();
    bed.share(RENAMED);
    let line = bed.refreshed("sim:t4x2");
    assert!(
        line.contains("host.json: written; ") && line.contains("tranche.yaml has 5 devices of nvidia.com/gpu "),
        "{line}"
    );
    assert_eq!(bed.names(), "host.json tranche-gpu.shared.yaml tranche.yaml");
    let file = bed.host_file();
    assert_eq!(file.inventory.gpus.len(), 2);
    let shares: Vec<usize> = file.plan.devices.iter().map(|device| device.shares.len()).collect();
    assert_eq!(shares, [4, 4]);
    assert!(
        file.inventory.absent.is_empty() && file.hook.as_str().ends_with("/tranche-oci"),
        "{:?}",
        file.hook
    );
    let generated = fs::read_to_string(bed.spec("tranche.yaml")).unwrap();
    assert!(
        generated.contains(&format!("# Digest of the host: {}\n", file.host)),
        "{generated}"
    );
    assert!(generated.contains(&format!("# Digest of the policy: {}\n", file.policy)));
    for path in [bed.spec("tranche.yaml"), bed.state().join("host.json")] {
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, 0o644);
    }
    let before = bed.inodes();
    let line = bed.refreshed("sim:t4x2");
    assert!(line.contains("host.json: is current; "), "{line}");
    assert_eq!(bed.inodes(), before, "nothing was written");

    // Each file that is missing, damaged or old is written again, and host.json with it.
    for name in ["cdi/tranche.yaml", "cdi/tranche-gpu.shared.yaml", "state/host.json"] {
        for damage in [|path: &Path| fs::remove_file(path), |path: &Path| fs::write(path, "{")] {
            let files = bed.files();
            damage(&bed.at(name)).unwrap();
            assert!(HostFile::read(&bed.state()).is_err(), "{name}");
            assert!(bed.refreshed("sim:t4x2").contains("host.json: written"));
            bed.host_file();
            let names = |files: BTreeMap<String, String>| {
                files
                    .into_iter()
                    .filter(|(name, _)| name != "host.json")
                    .collect::<BTreeMap<_, _>>()
            };
            assert_eq!(names(bed.files()), names(files), "{name}");
        }
    }
    fs::remove_file(bed.state().join("host.json")).unwrap();
    let specs = bed.spec("tranche.yaml").metadata().unwrap().ino();
    bed.refreshed("sim:t4x2");
    assert_eq!(
        bed.spec("tranche.yaml").metadata().unwrap().ino(),
        specs,
        "only host.json was missing"
    );
}

#[test]
fn the_specifications_are_those_of_generate() {
    let bed = Bed::new();
    bed.share(RENAMED);
    bed.refreshed("sim:hgx-h200");
    let generated = Command::new(env!("CARGO_BIN_EXE_tranche"))
        .args(["cdi", "generate", "--inventory=sim:hgx-h200", "--output"])
        .arg(bed.at("generated/tranche.yaml"))
        .arg(format!("--config={}", bed.at("config.yaml").display()))
        .arg(format!("--state-dir={}", bed.state().display()))
        .env_clear()
        .status()
        .unwrap();
    assert!(generated.success());
    for name in ["tranche.yaml", "tranche-gpu.shared.yaml"] {
        let without_mark = fs::read_to_string(bed.spec(name))
            .unwrap()
            .replace("# Kept current by tranche cdi refresh\n", "");
        assert_eq!(
            without_mark,
            fs::read_to_string(bed.at("generated").join(name)).unwrap(),
            "{name}"
        );
    }
}

#[test]
fn a_changed_policy_changes_the_files_and_removes_those_that_it_no_longer_has() {
    let bed = Bed::new();
    bed.share(RENAMED);
    bed.refreshed("sim:t4x2");
    let before = bed.files();
    bed.share("");
    match HostFile::read(&bed.state()) {
        Err(HostFileError::Stale { changed, .. }) => assert_eq!(changed.kind, SourceKind::Policy),
        other => panic!("{other:?}"),
    }
    // What another program or a person put there stays.
    for name in ["nvidia.com-claim_a.yaml", "tranche-gpu.other.yaml"] {
        fs::write(bed.spec(name), "another\n").unwrap();
    }
    let dry = bed.refresh("sim:t4x2", &["--dry-run"]);
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert!(
        dry.err.contains("would be written") && dry.err.contains("; would remove "),
        "{dry:?}"
    );
    assert_eq!(before["tranche.yaml"], bed.files()["tranche.yaml"]);
    assert!(bed.refreshed("sim:t4x2").contains("; removed "));
    assert_eq!(
        bed.names(),
        "host.json nvidia.com-claim_a.yaml tranche-gpu.other.yaml tranche.yaml"
    );
    assert!(bed.host_file().plan.devices.is_empty());
}

#[test]
fn a_stale_specification_is_repaired_by_another_refresh() {
    let bed = Bed::new();
    bed.refreshed("sim:t4x2");
    let output = Command::new(env!("CARGO_BIN_EXE_tranche"))
        .args(["cdi", "validate", "--inventory=sim:hgx-h200"])
        .arg(bed.spec("tranche.yaml"))
        .env_clear()
        .output()
        .unwrap();
    let said = said(&output);
    assert_eq!((said.code, said.out.lines().count()), (Some(4), 1), "{said:?}");
    assert!(said.out.ends_with("; run tranche cdi refresh\n"), "{said:?}");
}

#[test]
fn a_dry_run_makes_not_even_a_directory() {
    let bed = Bed::new();
    let said = bed.refresh("sim:t4x2", &["--dry-run", "--json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    let report: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(report["changed"], true);
    assert_eq!(report["specs"][0]["devices"], 6);
    assert!(!bed.at("cdi").exists() && !bed.state().exists());
}

#[test]
fn programs_read_the_result_as_json() {
    let bed = Bed::new();
    bed.share(RENAMED);
    let report = |more: &[&str]| -> Value {
        let said = bed.refresh("sim:t4x2", &[&["--json"], more].concat());
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{said:?}");
        serde_json::from_str(&said.out).unwrap()
    };
    let first = report(&[]);
    let kinds: Vec<&Value> = first["specs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|spec| &spec["kind"])
        .collect();
    assert_eq!(kinds, ["nvidia.com/gpu", "nvidia.com/gpu.shared"]);
    assert_eq!(
        (&first["changed"], &first["specs"][1]["changed"]),
        (&json!(true), &json!(true))
    );
    let second = report(&[]);
    assert_eq!(
        (&second["changed"], &second["specs"][1]["changed"]),
        (&json!(false), &json!(false))
    );
}

#[test]
fn the_settings_of_the_runtime_are_those_of_the_policy_or_of_nvidia_s_file() {
    let bed = Bed::new();
    let toml = bed.at("config.toml");
    let option = format!("--nvidia-config={}", toml.display());
    let privileged = "accept-nvidia-visible-devices-envvar-when-unprivileged = false\n";
    fs::write(
        &toml,
        format!(
            "{privileged}new = 1\nnvidia-container-runtime.modes.cdi.spec-dirs = [\"{}\"]\n",
            bed.at("cdi").display()
        ),
    )
    .unwrap();
    let settings = || bed.host_file().runtime;
    bed.refreshed("sim:t4x2");
    assert_eq!(settings().accept_environment, AcceptEnvironment::Always);
    // The policy has the section: the other file is not even read.
    assert_eq!(bed.refresh("sim:t4x2", &[&option]).code, Some(0));
    assert_eq!(settings().accept_environment, AcceptEnvironment::Always);
    fs::write(bed.at("config.yaml"), "version: v1\n").unwrap();
    let said = bed.refresh("sim:t4x2", &[&option]);
    assert_eq!((said.code, said.err.lines().count()), (Some(0), 2), "{said:?}");
    assert!(
        said.err
            .starts_with(&format!("{}:2:7: \"new\" is unknown", toml.display())),
        "{said:?}"
    );
    let expected = RuntimeSettings {
        accept_environment: AcceptEnvironment::Privileged,
        spec_dirs: vec![bed.at("cdi")],
        ..RuntimeSettings::default()
    };
    assert_eq!(settings(), expected);
    // A change of it makes host.json stale, and a mistake in it changes nothing.
    let before = bed.files();
    fs::write(&toml, "disable-require = 1\n").unwrap();
    assert!(matches!(
        HostFile::read(&bed.state()),
        Err(HostFileError::Stale { changed, .. }) if changed.kind == SourceKind::NvidiaConfig
    ));
    let said = bed.refresh("sim:t4x2", &[&option]);
    assert_eq!((said.code, said.err.lines().count()), (Some(2), 1), "{said:?}");
    assert!(
        said.err
            .contains("config.toml:1:19: disable-require: expected true or false"),
        "{said:?}"
    );
    assert_eq!(bed.files(), before);
    fs::remove_file(&toml).unwrap();
    let said = bed.refresh("sim:t4x2", &[&option]);
    assert_eq!(said.code, Some(1), "{said:?}");
}

#[test]
fn the_recorded_arguments_repeat_the_refresh() {
    let bed = Bed::new();
    bed.share(RENAMED);
    let inventory = bed.inventory("t4x2", |_| ());
    let more = [
        "--hook-path=/opt/tranche-oci",
        "--cdi-version=0.6",
        "--nvml-deadline=2.5",
    ];
    assert_eq!(bed.refresh(&inventory, &more).code, Some(0));
    let before = bed.inodes();
    let file = bed.host_file();
    assert_eq!(file.hook.as_str(), "/opt/tranche-oci");
    let output = Command::new(env!("CARGO_BIN_EXE_tranche"))
        .args(["cdi", "refresh"])
        .args(&file.arguments)
        .env_clear()
        .current_dir("/")
        .output()
        .unwrap();
    let said = said(&output);
    assert!(said.code == Some(0) && said.err.contains("is current"), "{said:?}");
    assert_eq!(bed.inodes(), before);
    assert!(
        file.arguments.iter().any(|argument| argument == "--nvml-deadline=2.5"),
        "{:?}",
        file.arguments
    );
}

#[test]
fn nvidia_s_hook_cannot_be_the_one_of_shares() {
    let bed = Bed::new();
    let said = bed.refresh("sim:t4x2", &["--hook-path=/usr/bin/nvidia-cdi-hook"]);
    assert_eq!((said.code, said.err.lines().count()), (Some(2), 1), "{said:?}");
    assert!(
        said.err
            .contains("does not support shares; give the path of tranche-oci"),
        "{said:?}"
    );
    assert!(!bed.at("cdi").exists());
}

/// The engine resolves such a name by itself, so that nobody can refuse it.
#[test]
fn a_file_of_another_program_with_nodes_of_a_dedicated_device_is_named() {
    let bed = Bed::new();
    bed.share("  dedicated: {devices: [1]}\n");
    fs::create_dir_all(bed.at("cdi")).unwrap();
    let write = |minor: u32| {
        let spec = json!({"cdiVersion": "0.5.0", "kind": "vendor.com/all", "devices": [{"name": "every",
            "containerEdits": {"deviceNodes": [{"path": "/dev/odd", "type": "c", "major": 195, "minor": minor}]}}]});
        fs::write(bed.at("cdi/vendor.json"), spec.to_string()).unwrap();
    };
    write(0);
    assert!(!bed.refreshed("sim:t4x2").contains("vendor"));
    write(1);
    let line = bed.refreshed("sim:t4x2");
    let expected = "vendor.com/all=every of ";
    assert!(
        line.contains(expected)
            && line.contains("/dev/odd of gpu 1, which is dedicated by the policy and needs a claim"),
        "{line}"
    );
    assert!(
        line.contains("an engine that reads this file asks for no claim"),
        "{line}"
    );
}

/// What a claim with admin access watches has no hook, and only the kubelet names its devices to an engine.
#[test]
fn the_specification_of_a_resource_claim_is_no_file_of_another_program() {
    let bed = Bed::new();
    bed.share("  dedicated: {devices: [1]}\n");
    fs::create_dir_all(bed.at("cdi")).unwrap();
    let text = "cdiVersion: 0.5.0\nkind: nvidia.com/claim\ndevices:\n- name: u-gpu-1\n  containerEdits: {deviceNodes: \
                [{path: /dev/odd, type: c, major: 195, minor: 1}]}\n";
    let write = |header: &str| {
        let file = "cdi/nvidia.com-resource-claim_aaaaaaaa-0000-4000-8000-000000000001.yaml";
        fs::write(bed.at(file), format!("---\n# {header}\n{text}")).unwrap();
    };
    write("Made by tranche 0.1.0 for resource claim lab/all");
    let line = bed.refreshed("sim:t4x2");
    assert!(!line.contains("resource-claim"), "{line}");
    // The name alone is not enough.
    write("Made by another program");
    let line = bed.refreshed("sim:t4x2");
    assert!(line.contains("nvidia.com/claim=u-gpu-1 of "), "{line}");
}
