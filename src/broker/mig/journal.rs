//! What a change of layouts has begun, so that the next process can finish or undo it.
//!
//! It is written before anything is stopped or changed, and removed when the GPUs have what they are to have, when that
//! is recorded, and when the services that were stopped for it are started again. The file is in the state directory,
//! which does not outlive a boot, and neither do the instances.

use super::saved::SavedGpu;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use tranche_core::claims::MovedClaim;
use tranche_core::error::Result;
use tranche_plan::mig::{ExactGpu, Placement};
use tranche_state::replace;
use tranche_state::state_file::FileForm;

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
    pub before: Vec<SavedGpu>,
    /// What they are to have.
    pub target: Vec<ExactGpu>,
    /// What is recorded when they have it.
    pub record: Record,
    /// The services that were stopped for it, and are started again after it.
    pub services: Vec<String>,
    /// The claims that follow to other numbers; `None` until they are known.
    pub moved: Option<Vec<MovedClaim>>,
}

/// What is recorded when the GPUs have what they are to have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Record {
    /// Their layout, which the next boot makes again.
    #[default]
    Layout,
    /// The instance at this place, which was made on demand and is destroyed after its last use.
    OnDemand(Placement),
    /// Nothing: an instance that was made on demand is gone.
    Nothing,
}

impl MigJournal {
    /// A change from `before` to `target`.
    pub fn new(before: Vec<SavedGpu>, target: Vec<ExactGpu>, record: Record) -> Self {
        Self {
            version: FORM.version,
            before,
            target,
            record,
            services: Vec::new(),
            moved: None,
        }
    }

    /// What the GPUs had before.
    pub fn layouts_before(&self) -> Vec<ExactGpu> {
        self.before.iter().map(|saved| saved.layout.clone()).collect()
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
