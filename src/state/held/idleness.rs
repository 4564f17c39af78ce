//! Since when what users hold has done nothing, as the broker has seen it.

use crate::state_file::{self, FileForm};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use tranche_core::error::Result;
use tranche_plan::idle::Idleness;

const FORM: FileForm = FileForm {
    version: 1,
    invalid: "is not valid",
    hint: "remove it; the idle time of what users hold begins again",
};

#[derive(Serialize, Deserialize)]
struct Content<I> {
    version: u32,
    idleness: I,
}

/// Writes it for `tranche status` and for the next broker; without a claim, the file is removed. Root alone can read
/// it.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn write(idleness: &Idleness, state_dir: &Path) -> Result<()> {
    let path = path(state_dir);
    if idleness.is_empty() {
        return state_file::remove(&path);
    }
    let version = FORM.version;
    state_file::write_private(&path, &Content { version, idleness })
}

/// What the broker wrote last; nothing if the policy limits no idleness.
///
/// # Errors
/// Returns an error if the file cannot be used.
pub fn read(state_dir: &Path) -> Result<Idleness> {
    let content = FORM.read(&path(state_dir), |content: &Content<Idleness>| content.version)?;
    Ok(content.map(|content| content.idleness).unwrap_or_default())
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("idle.json")
}
