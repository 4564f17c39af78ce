//! `turns-tested.json` in `/var/lib/tranche`: what `tranche turns try` has found on this machine.

use crate::state_file::FileForm;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Result};
use tranche_core::ledger::events::this_boot;
use tranche_core::ledger::kept_dir;
use tranche_plan::turns::tries::TurnTries;

const FORM: FileForm = FileForm {
    version: 1,
    invalid: "is not valid",
    hint: "remove it, and run tranche turns try again",
};

#[derive(Serialize, Deserialize)]
struct Content {
    version: u32,
    tries: TurnTries,
}

fn path(state_dir: &Path) -> PathBuf {
    kept_dir(state_dir).join("turns-tested.json")
}

/// What was found on the machine whose ledger is in `state_dir`. Every user may read it.
///
/// # Errors
/// Returns an error if the file cannot be used.
pub fn read(state_dir: &Path) -> Result<TurnTries> {
    let content = FORM.read(&path(state_dir), |content: &Content| content.version)?;
    let mut tries = content.map(|content| content.tries).unwrap_or_default();
    tries.take_in_boot(&this_boot());
    Ok(tries)
}

/// Keeps it.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn write(state_dir: &Path, tries: &TurnTries) -> Result<()> {
    let path = path(state_dir);
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).about(directory.display(), "cannot be made")?;
    }
    let version = FORM.version;
    FORM.write(
        &path,
        &Content {
            version,
            tries: tries.clone(),
        },
    )
}
