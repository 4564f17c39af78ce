//! What a script that was written for `nvidia-ctk cdi generate` relies on, besides the contents of the specification
//! (which tests/specs/parity.rs compares).

use crate::support::{fake_host, programs, skip};
use crate::{Said, said};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

mod command;
mod contents;
mod hooks;
mod search;

const LIBDIR: &str = "/usr/lib/x86_64-linux-gnu";

impl Said {
    /// The specification that was printed.
    fn spec(&self) -> Value {
        assert_eq!(self.code, Some(0), "{}", self.err);
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.out))
    }
}

fn tranche(variables: &[(&str, &str)], arguments: &[&str]) -> Said {
    let mut command = crate::program(arguments);
    command.envs(variables.iter().copied());
    said(command)
}

/// `cdi generate --format=json` of a built-in host.
fn generate(inventory: &str, more: &[&str]) -> Said {
    let inventory = format!("--inventory=sim:{inventory}");
    let first = ["cdi", "generate", "--format=json", &inventory];
    tranche(&[], &[&first, more].concat())
}

/// A test host in a directory of its own; `None` where this user cannot build it.
fn host(test: &str, name: &str) -> Option<(tempfile::TempDir, fake_host::Host)> {
    let directory = tempfile::tempdir().unwrap();
    let host = fake_host::build(name, &directory.path().join("host")).unwrap();
    if let Some(missing) = host.not_made.first() {
        skip::not_run(&format!("drop_in::{test}"), &missing.why);
        return None;
    }
    Some((directory, host))
}

/// `cdi generate --format=json` of a test host that is this machine's: its driver's files are below a driver root.
fn with_driver_root(host: &fake_host::Host, variables: &[(&str, &str)], more: &[&str]) -> Said {
    let root = host.root.display();
    let places = [
        format!("--driver-root={root}"),
        format!("--proc-root={root}/proc"),
        format!("--sys-root={root}/sys"),
    ];
    let places: Vec<&str> = places.iter().map(String::as_str).collect();
    tranche(
        variables,
        &[&["cdi", "generate", "--format=json"], &*places, more].concat(),
    )
}

/// The container paths of the mounts that all devices get.
fn mounts(spec: &Value) -> Vec<&str> {
    let mounts = spec["containerEdits"]["mounts"].as_array().unwrap();
    mounts.iter().map(|m| m["containerPath"].as_str().unwrap()).collect()
}

/// The host path of what is mounted at `path`.
fn source<'a>(spec: &'a Value, path: &str) -> Option<&'a str> {
    let mounts = spec["containerEdits"]["mounts"].as_array().unwrap();
    mounts.iter().find(|m| m["containerPath"] == path)?["hostPath"].as_str()
}

fn device<'a>(spec: &'a Value, name: &str) -> &'a Value {
    let devices = spec["devices"].as_array().unwrap();
    devices
        .iter()
        .find(|d| d["name"] == name)
        .unwrap_or_else(|| panic!("no device {name}"))
}

fn names(spec: &Value) -> Vec<&str> {
    let devices = spec["devices"].as_array().unwrap();
    devices.iter().map(|d| d["name"].as_str().unwrap()).collect()
}

/// The arguments of each hook in `edits`.
fn hooks(edits: &Value) -> Vec<Vec<&str>> {
    let hooks = edits["hooks"].as_array().map(Vec::as_slice).unwrap_or_default();
    hooks
        .iter()
        .map(|h| {
            h["args"]
                .as_array()
                .unwrap()
                .iter()
                .map(|a| a.as_str().unwrap())
                .collect()
        })
        .collect()
}

/// An executable file, in a directory that nobody but its owner can write.
fn program(path: &Path) {
    let directory = path.parent().unwrap();
    programs::script(path, "");
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
}
