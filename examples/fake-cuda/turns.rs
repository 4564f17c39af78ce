//! Suspending and resuming, where the configuration has
//! `"turns": {"directory": "/a/directory", "node": "/dev/nvidia0"}`.
//!
//! A process that has a context is a *target*: a thread of it answers the caller of `cuCheckpointProcess…` for its
//! number ([`caller`]). They talk through a socket in the directory, and the kernel says which process is at its other
//! end, so that a target may be in another pid namespace. The memory of a device is files in the directory
//! ([`blocks`]), and a suspended target holds their bytes in its own memory.
//!
//! Faults are as the real driver has them:
//! - A restore for which too little memory is free fails with 2, and from then on with 304 for ever
//!   (cuda-checkpoint issue 44); so does one that cannot open the node.
//! - Whoever finds that a target was killed after a restore writes the file `host-hung` (cuda-checkpoint issue 53).
//! - The file `faults`, or the variable `TRANCHE_FAKE_TURNS_FAULTS` of a target, has more: `{"lock": "hang"}` for a
//!   call that does not return, `"fail"` for a target that fails for good, `"damage"` for a restore
//!   after which a byte of each block is another one, or a number that the call returns.

mod blocks;
mod caller;
pub(crate) mod memory;
mod target;

pub(crate) use target::{begin, call, is_target, used_by_others};

use serde_json::{Map, Value};
use std::fs::{self, File};
use std::path::Path;

/// What ends after a restore leaves behind.
const HUNG: &str = "host-hung";

/// How a target is called in the directory: `NAME.live`, which it holds a lock of, `NAME.sock` and `NAME.restored`.
const LIVE: &str = "live";
const SOCKET: &str = "sock";
const RESTORED: &str = "restored";

/// What is to go wrong with a call; `None`: nothing.
fn fault(directory: &Path, verb: &str) -> Option<String> {
    let own = std::env::var("TRANCHE_FAKE_TURNS_FAULTS").ok();
    let text = own.or_else(|| fs::read_to_string(directory.join("faults")).ok())?;
    let faults: Map<String, Value> = serde_json::from_str(&text).ok()?;
    match faults.get(verb)? {
        Value::String(word) => Some(word.clone()),
        other => Some(other.to_string()),
    }
}

/// Holds the directory for this process alone until the file is dropped.
fn hold(directory: &Path) -> Option<nix::fcntl::Flock<File>> {
    let file = File::create(directory.join("lock")).ok()?;
    nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusive).ok()
}

/// Whether the target still lives. One that has ended loses its memory; if it was killed after a restore, the host
/// hangs. For one who holds the directory.
fn lives(directory: &Path, name: &str) -> bool {
    let live = directory.join(name).with_extension(LIVE);
    let Ok(file) = File::open(&live) else {
        return false;
    };
    if nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockSharedNonblock).is_err() {
        return true;
    }
    if directory.join(name).with_extension(RESTORED).exists() {
        let _ = fs::write(directory.join(HUNG), format!("{name} was killed after a restore\n"));
    }
    forget(directory, name);
    false
}

/// Removes all that a target has in the directory.
fn forget(directory: &Path, name: &str) {
    blocks::remove_all(directory, name);
    for extension in [SOCKET, RESTORED, LIVE] {
        let _ = fs::remove_file(directory.join(name).with_extension(extension));
    }
}
