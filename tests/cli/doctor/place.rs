//! A host on this machine, which every command finds by its environment: so the command of a fix is run as it is
//! printed.

use crate::support::{fake_host, programs, skip};
use crate::{Said, said};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tranche_plan::cdi::registry::Registry;

pub(super) struct Place {
    top: tempfile::TempDir,
    pub(super) host: fake_host::Host,
}

/// A process that ends with the test.
pub(super) struct Running(Child);

impl Running {
    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Place {
    /// A place with the test host `name`; `None` if it cannot be made here, which is reported for `test`.
    pub(super) fn new(test: &str, name: &str) -> Option<Self> {
        let top = tempfile::tempdir().unwrap();
        // Users must reach the specifications in it.
        fs::set_permissions(top.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let host = fake_host::build(name, &top.path().join("host")).unwrap();
        if let Some(missing) = host.not_made.first() {
            skip::not_run(&format!("doctor::starts::{test}"), &missing.why);
            return None;
        }
        let place = Self { top, host };
        for directory in ["state", "bin", "engines"] {
            fs::create_dir(place.at(directory)).unwrap();
        }
        for (name, program) in [
            ("tranche", env!("CARGO_BIN_EXE_tranche")),
            ("tranche-oci", env!("CARGO_BIN_EXE_tranche-oci")),
        ] {
            symlink(program, place.at("bin").join(name)).unwrap();
        }
        place.policy("version: v1\n");
        Some(place)
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.top.path().join(path)
    }

    pub(super) fn policy(&self, text: &str) {
        fs::write(self.at("config.yaml"), text).unwrap();
    }

    /// An engine that is installed, and prints this as its version.
    pub(super) fn engine(&self, program: &str, version: &str) {
        programs::script(self.at("engines").join(program), &format!("echo {version}"));
    }

    /// `program` in the environment that names this place.
    pub(super) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        let root = &self.host.root;
        command.env_clear();
        command.env("PATH", format!("{}:/usr/bin:/bin", self.at("bin").display()));
        command.env("TRANCHE_DRIVER_ROOT", root).env("TRANCHE_DEV_ROOT", root);
        command
            .env("TRANCHE_PROC_ROOT", root.join("proc"))
            .env("TRANCHE_SYS_ROOT", root.join("sys"));
        command.env("TRANCHE_CONFIG", self.at("config.yaml"));
        for (name, path) in [
            ("SPEC", "cdi"),
            ("OUTPUT", "cdi"),
            ("STATE", "state"),
            ("TMPFILES", "tmpfiles"),
        ] {
            command.env(format!("TRANCHE_{name}_DIR"), self.at(path));
        }
        command
    }

    pub(super) fn tranche(&self, words: &[&str]) -> Said {
        let mut command = self.command(env!("CARGO_BIN_EXE_tranche"));
        command.args(words);
        said(command)
    }

    /// The same by another user, who is not root.
    pub(super) fn tranche_as_nobody(&self, words: &[&str]) -> Said {
        use std::os::unix::process::CommandExt;
        let mut command = self.command(env!("CARGO_BIN_EXE_tranche"));
        command.args(words).uid(65534).gid(65534);
        said(command)
    }

    /// A process of tranche in the background.
    pub(super) fn start(&self, words: &[&str]) -> Running {
        let mut command = self.command(env!("CARGO_BIN_EXE_tranche"));
        let command = command.args(words).stdin(Stdio::null());
        Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Writes the specifications and host.json.
    pub(super) fn refresh(&self) {
        let said = self.tranche(&["cdi", "refresh"]);
        assert_eq!(said.code, Some(0), "{said:?}");
    }

    /// Runs the command of a fix as a shell runs it.
    pub(super) fn fix(&self, fix: &str) {
        let mut command = self.command("/bin/sh");
        command.args(["-c", fix]);
        let said = said(command);
        assert_eq!(said.code, Some(0), "{fix}: {said:?}");
    }

    /// All results of doctor with something to do.
    pub(super) fn troubles(&self) -> Vec<Value> {
        let engines = format!("--engine-dir={}", self.at("engines").display());
        let said = self.tranche(&["doctor", "--json", &engines]);
        let report: Value = serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        let checks = report["checks"].as_array().unwrap().iter();
        checks.filter(|one| one["finding"].is_string()).cloned().collect()
    }

    /// The results of doctor about `finding`.
    pub(super) fn found(&self, finding: &str) -> Vec<Value> {
        let troubles = self.troubles().into_iter();
        troubles.filter(|one| one["finding"] == finding).collect()
    }

    /// The fix of the one result about `finding`.
    pub(super) fn fix_of(&self, finding: &str) -> String {
        match &self.found(finding)[..] {
            [one] => one["fix"].as_str().unwrap().to_owned(),
            found => panic!("{finding}: {found:?}; all: {:?}", self.troubles()),
        }
    }

    /// The hook that claims `device` for a container, as an engine runs it at the start.
    pub(super) fn claim(&self, device: &str) -> Said {
        let registry = Registry::read(&[self.at("cdi")]);
        let found = registry.find(&device.parse().unwrap()).unwrap();
        let hooks = found.device.edits.hooks.iter();
        let hook = hooks
            .into_iter()
            .find(|hook| hook.hook_name == "createRuntime")
            .unwrap();
        let init = Running(Command::new("/bin/sleep").arg("60").spawn().unwrap());
        let bundle = self.at("bundle");
        fs::create_dir_all(bundle.join("rootfs")).unwrap();
        fs::write(bundle.join("config.json"), r#"{"root": {"path": "rootfs"}}"#).unwrap();
        let state =
            json!({"ociVersion": "1.0.2", "id": "c", "status": "creating", "bundle": bundle, "pid": init.pid()});
        fs::write(self.at("container.state"), state.to_string()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tranche-oci"));
        command.args(&hook.args[1..]).env_clear();
        command.stdin(fs::File::open(self.at("container.state")).unwrap());
        said(command)
    }
}
