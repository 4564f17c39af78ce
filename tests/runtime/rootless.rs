//! The runtime of a rootless engine, which runs in a user namespace of its own.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::place::{EXECUTED, Place, plain, said};
use crate::support::rights;

const USER: u32 = 65534;

/// A place in which the user may start a container that asks for GPU 0. In the namespace, host.json and the directories
/// on the way to it belong to nobody that the user knows.
fn place() -> Place {
    let place = Place::new();
    let mut config = plain();
    config["process"]["env"] = json!(["NVIDIA_VISIBLE_DEVICES=0"]);
    place.configure(&config);
    // The low-level runtime writes down how it was started beside itself.
    for (path, mode) in [("", 0o755), ("bin", 0o777)] {
        fs::set_permissions(place.at(path), Permissions::from_mode(mode)).unwrap();
    }
    for path in ["bundle", "bundle/config.json"] {
        chown(place.at(path), Some(USER), Some(USER)).unwrap();
    }
    place
}

/// Runs the runtime as root of the user's namespace.
fn run(place: &Place, arguments: &[&str]) -> Output {
    let mut command = Command::new("setpriv");
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "unshare",
        "--user",
        "--map-root-user",
    ]);
    command.arg(place.runtime()).arg("--state-dir").arg(place.at("state"));
    command
        .args(arguments)
        .current_dir(place.at("bundle"))
        .output()
        .unwrap()
}

#[test]
fn a_container_of_a_rootless_engine_gets_a_whole_device() {
    if !rights::owns_machine("rootless::a_container_of_a_rootless_engine_gets_a_whole_device") {
        return;
    }
    let place = place();
    let bundle = place.at("bundle");
    let output = run(&place, &["create", "--bundle", bundle.to_str().unwrap(), "ID"]);
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(EXECUTED), ""));
    let config: Value = serde_json::from_slice(&fs::read(place.config()).unwrap()).unwrap();
    assert!(
        config["linux"]["devices"]
            .as_array()
            .is_some_and(|nodes| !nodes.is_empty()),
        "{config}"
    );
    assert_eq!(config["hooks"]["createContainer"].as_array().map(Vec::len), Some(1));
    assert!(!place.at("state/ledger").exists(), "root's ledger is left alone");
}

#[test]
fn the_end_of_a_container_of_a_rootless_engine_looks_for_nothing_in_roots_ledger() {
    if !rights::owns_machine("rootless::the_end_of_a_container_of_a_rootless_engine") {
        return;
    }
    let place = place();
    fs::create_dir(place.at("state/ledger")).unwrap();
    // The runtime asks for what the container holds only where a broker runs.
    fs::write(place.at("state/broker.sock"), "").unwrap();
    let output = run(&place, &["delete", "--force", "ID"]);
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(EXECUTED), ""));
}

#[test]
fn a_host_that_only_root_can_describe_is_refused_with_roots_command() {
    if !rights::owns_machine("rootless::a_host_that_only_root_can_describe") {
        return;
    }
    let place = place();
    fs::remove_file(place.at("state/host.json")).unwrap();
    let bundle = place.at("bundle");
    let output = run(&place, &["create", "--bundle", bundle.to_str().unwrap(), "ID"]);
    let line = said(&output);
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert!(line.contains("host.json: not found; run tranche cdi refresh"), "{line}");
}
