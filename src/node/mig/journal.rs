//! What a change of layouts has begun, so that the next process can finish or undo it.
//!
//! The file is in the state directory, which does not outlive a boot, and neither do the instances.

use crate::replace;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Error, Result};
use tranche_plan::mig::ExactGpu;

const FILE: &str = "mig-change.json";

/// The version of the form. Fields are added without a new version.
const VERSION: u32 = 1;

/// A change that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigJournal {
    version: u32,
    /// What the GPUs had before.
    pub before: Vec<ExactGpu>,
    /// What they are to have.
    pub target: Vec<ExactGpu>,
}

impl MigJournal {
    /// A change from `before` to `target`.
    pub fn new(before: Vec<ExactGpu>, target: Vec<ExactGpu>) -> Self {
        Self {
            version: VERSION,
            before,
            target,
        }
    }

    /// The file in `state_dir`.
    pub fn path(state_dir: &Path) -> PathBuf {
        state_dir.join(FILE)
    }

    /// The change that was begun and not finished; `None` if every change was finished.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or was not written by this version of tranche.
    pub fn read(state_dir: &Path) -> Result<Option<Self>> {
        let path = Self::path(state_dir);
        let bytes = match std::fs::read(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.about(path.display(), "cannot be read")?,
        };
        let unreadable = |what: &str| {
            Error::failed(path.display(), what)
                .hint("compare tranche mig status with the layout that you want, and remove the file")
        };
        let journal: Self =
            serde_json::from_slice(&bytes).map_err(|e| unreadable("is not a valid journal").from_source(e))?;
        match journal.version {
            VERSION => Ok(Some(journal)),
            _ => Err(unreadable("was written by another version of tranche")),
        }
    }

    /// Writes it to `state_dir`.
    ///
    /// # Errors
    /// Returns an error if it cannot be written. Nothing may be changed then.
    pub fn write(&self, state_dir: &Path) -> Result<()> {
        let path = Self::path(state_dir);
        let text = serde_json::to_string(self).about(path.display(), "cannot be written")?;
        replace::write(&path, &text)
    }

    /// Removes it from `state_dir`: the change is finished.
    ///
    /// # Errors
    /// Returns an error if it cannot be removed.
    pub fn remove(state_dir: &Path) -> Result<()> {
        replace::remove(&Self::path(state_dir))
    }
}
