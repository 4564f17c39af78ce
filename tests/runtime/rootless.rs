//! The runtime of a rootless engine, which runs in a user namespace of its own.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use serde_json::{Value, json};

use crate::place::{EXECUTED, Place, plain, said};
use crate::support::rights;

const USER: u32 = 65534;

/// In the namespace, host.json and the directories on the way to it belong to nobody that the user knows.
#[test]
fn a_container_of_a_rootless_engine_gets_a_whole_device() {
    if !rights::owns_machine("rootless::a_container_of_a_rootless_engine_gets_a_whole_device") {
        return;
    }
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
    command.args(["create", "--bundle"]).arg(place.at("bundle")).arg("ID");
    let output = command.current_dir(place.at("bundle")).output().unwrap();
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
