//! Requests of users that wait in the broker, as they are shown: to root by a file, and to each user by the broker.

use crate::state_file;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Result};

/// A request that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserWait {
    /// What it waits for: `claim 1000.train`, `gpu 0 any share`.
    pub what: String,
    /// The user.
    pub uid: u32,
    /// How many requests are served before it, as the order is now.
    pub ahead: usize,
    /// For how many seconds it has waited.
    pub waited: u64,
    /// The number of its ticket in the ledger, by which root comes after it; `None` where root does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket: Option<u64>,
}

const FILE: &str = "waiting.json";

/// Writes the requests that wait now for root, in their order; without any, the file is removed. It is readable for
/// root alone: who waits for what is shown to root and to the user.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn write(waits: &[UserWait], state_dir: &Path) -> Result<()> {
    let path = path(state_dir);
    match waits.is_empty() {
        true => state_file::remove(&path),
        false => state_file::write_private(&path, &waits),
    }
}

/// The requests that waited when the broker wrote them, at most a second ago while it runs.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn read(state_dir: &Path) -> Result<Vec<UserWait>> {
    let path = path(state_dir);
    match std::fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        read => {
            serde_json::from_slice(&read.about(path.display(), "cannot be read")?).about(path.display(), "is not valid")
        }
    }
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}
