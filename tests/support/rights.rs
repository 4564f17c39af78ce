//! What this process may do, for tests that need more than an ordinary user has.
//!
//! `make test` runs the tests of hooks in a user namespace of their own where the user is not root: they may then mount
//! and change the root directory, but there is only one user, no device node, and no cgroup hierarchy.

use crate::skip;
use caps::{CapSet, Capability, CapsHashSet};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Whether this process is root, of the machine or of a user namespace.
pub fn is_root() -> bool {
    nix::unistd::Uid::effective().is_root()
}

/// Whether this process is root of the machine: the users of its namespace are those of the machine.
pub fn is_root_of_machine() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap();
    is_root() && map.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

/// Whether `test` can run, which mounts or changes the root directory. Says so if not.
pub fn can_mount(test: &str) -> bool {
    if !is_root() {
        skip::not_run(test, "not root: cannot mount");
    }
    is_root()
}

/// Whether `test` can run, which needs other users, device nodes or cgroups. Says so if not.
pub fn owns_machine(test: &str) -> bool {
    let owns = is_root_of_machine();
    if !owns {
        skip::not_run(test, "not root of the machine");
    }
    owns
}

/// What the broker's unit leaves it (`CapabilityBoundingSet`).
fn of_broker() -> CapsHashSet {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd/tranche-broker.service");
    let text = std::fs::read_to_string(unit).unwrap();
    let mut lines = text.lines();
    let names = lines
        .find_map(|line| line.strip_prefix("CapabilityBoundingSet="))
        .unwrap();
    names
        .split(' ')
        .map(|name| name.parse::<Capability>().unwrap())
        .collect()
}

/// A command of the broker that has the capabilities of its unit.
pub fn broker(program: impl AsRef<OsStr>) -> Command {
    let mut set = "-all".to_owned();
    for capability in of_broker() {
        let name = capability.to_string().to_lowercase();
        set.push_str(&name.replacen("cap_", ",+", 1));
    }
    let mut command = Command::new("setpriv");
    command.arg(format!("--bounding-set={set}")).arg(program);
    command
}

/// Takes from this thread what the broker's unit does not leave it.
pub fn become_broker() {
    let own = caps::read(None, CapSet::Effective).unwrap();
    let left = of_broker();
    for capability in own.into_iter().filter(|capability| !left.contains(capability)) {
        caps::drop(None, CapSet::Effective, capability).unwrap();
    }
}
