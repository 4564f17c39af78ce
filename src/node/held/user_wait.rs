//! Requests of users that wait in the broker, as they are shown: to root by a file, and to each user by the broker.

use crate::replace::{self, FileOptions};
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
}

const FILE: &str = "waiting.json";

/// Readable for root alone: who waits for what is shown to root and to the user.
const MODE: u32 = 0o600;

/// Writes the requests that wait now for root, in their order; without any, the file is removed.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn write(waits: &[UserWait], state_dir: &Path) -> Result<()> {
    let path = path(state_dir);
    if waits.is_empty() {
        return match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error).about(path.display(), "cannot be removed"),
            _ => Ok(()),
        };
    }
    let text = serde_json::to_string(waits).about(path.display(), "cannot be written")?;
    let options = FileOptions {
        mode: MODE,
        ..FileOptions::default()
    };
    replace::Prepared::new(&path, &text, &options)?.put_in_place()
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
