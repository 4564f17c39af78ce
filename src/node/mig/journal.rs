//! What a change of layouts has begun, so that the next process can finish or undo it.
//!
//! The file is in the state directory, which does not outlive a boot, and neither do the instances.

use super::state_file::FileForm;
use crate::replace;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use tranche_core::error::Result;
use tranche_plan::mig::ExactGpu;

const FILE: &str = "mig-change.json";

const FORM: FileForm = FileForm {
    version: 1,
    invalid: "is not a valid journal",
    hint: "compare tranche mig status with the layout that you want, and remove the file",
};

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
            version: FORM.version,
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
        FORM.read(&Self::path(state_dir), |journal: &Self| journal.version)
    }

    /// Writes it to `state_dir`.
    ///
    /// # Errors
    /// Returns an error if it cannot be written. Nothing may be changed then.
    pub fn write(&self, state_dir: &Path) -> Result<()> {
        FORM.write(&Self::path(state_dir), self)
    }

    /// Removes it from `state_dir`: the change is finished.
    ///
    /// # Errors
    /// Returns an error if it cannot be removed.
    pub fn remove(state_dir: &Path) -> Result<()> {
        replace::remove(&Self::path(state_dir))
    }
}
