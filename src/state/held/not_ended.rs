//! Which claims the broker cannot end, although the policy says so, and why.

use crate::state_file::{self, FileForm};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tranche_core::error::Result;

const FORM: FileForm = FileForm {
    version: 1,
    invalid: "is not valid",
    hint: "remove it; the broker writes it again",
};

/// Why each claim cannot be ended, by [`tranche_plan::hold::key`].
pub type NotEnded = BTreeMap<String, String>;

#[derive(Serialize, Deserialize)]
struct Content<C> {
    version: u32,
    claims: C,
}

/// Writes them for `tranche status`; without one, the file is removed. Root alone can read it.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn write(claims: &NotEnded, state_dir: &Path) -> Result<()> {
    let path = path(state_dir);
    if claims.is_empty() {
        return state_file::remove(&path);
    }
    let version = FORM.version;
    state_file::write_private(&path, &Content { version, claims })
}

/// What the broker wrote last.
///
/// # Errors
/// Returns an error if the file cannot be used.
pub fn read(state_dir: &Path) -> Result<NotEnded> {
    let content = FORM.read(&path(state_dir), |content: &Content<NotEnded>| content.version)?;
    Ok(content.map(|content| content.claims).unwrap_or_default())
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join("not-ended.json")
}
