//! Requests of users that wait in the broker, as they are shown: to root by a file, and to each user by the broker.

use crate::state_file::{self, FileForm};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use tranche_core::error::Result;

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

impl UserWait {
    /// Whether it is the same request in the same place.
    pub fn is_same(&self, other: &Self) -> bool {
        let waited = other.waited;
        *other == Self { waited, ..self.clone() }
    }
}

const FILE: &str = "waiting.json";

const FORM: FileForm = FileForm {
    version: 1,
    invalid: "is not valid",
    hint: "a broker that runs writes it again within a second",
};

#[derive(Serialize, Deserialize)]
struct Content<W> {
    version: u32,
    waiting: W,
}

/// What may be in the file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Form {
    Present(Content<Vec<UserWait>>),
    /// As a broker wrote it that had no place for a checksum.
    Earlier(Vec<UserWait>),
}

/// Writes the requests that wait now for root, in their order; without any, the file is removed. It is readable for
/// root alone: who waits for what is shown to root and to the user.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn write(waits: &[UserWait], state_dir: &Path) -> Result<()> {
    let path = path(state_dir);
    match waits.is_empty() {
        true => state_file::remove(&path),
        false => {
            let version = FORM.version;
            state_file::write_private(
                &path,
                &Content {
                    version,
                    waiting: waits,
                },
            )
        }
    }
}

/// The requests that wait, as they did at most a second ago while the broker runs.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub fn read(state_dir: &Path) -> Result<Vec<UserWait>> {
    let path = path(state_dir);
    let version = |read: &Form| match read {
        Form::Present(content) => content.version,
        Form::Earlier(_) => FORM.version,
    };
    let mut waiting = match FORM.read(&path, version)? {
        None => return Ok(Vec::new()),
        Some(Form::Present(content)) => content.waiting,
        Some(Form::Earlier(waiting)) => waiting,
    };
    // It is written when something has changed. A clock that was set back adds nothing.
    let written = std::fs::metadata(&path).and_then(|file| file.modified());
    let since = written.map_or(0, |written| written.elapsed().unwrap_or_default().as_secs());
    for wait in &mut waiting {
        wait.waited = wait.waited.saturating_add(since);
    }
    Ok(waiting)
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}
