//! Layouts that the last boot could not make, kept for `tranche doctor`: the file needs no GPU to be read.
//!
//! The file is in the state directory, which does not outlive a boot.

use crate::replace;
use crate::state_file::FileForm;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use tranche_core::error::Result;
use tranche_core::types::GpuUuid;

const FILE: &str = "mig-restore.json";

const FORM: FileForm = FileForm {
    version: 1,
    invalid: "is not valid",
    hint: "remove it, and try the layouts again: tranche mig restore",
};

/// What the last `tranche mig restore` could not do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreFailures {
    version: u32,
    /// Each failure.
    pub failed: Vec<FailedRestore>,
}

/// Why a layout was not made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRestore {
    /// Whose layout; `None` if no GPU could be looked at.
    pub gpu: Option<GpuUuid>,
    /// The error, as the command printed it.
    pub reason: String,
}

impl RestoreFailures {
    /// These failures.
    pub fn new(failed: Vec<FailedRestore>) -> Self {
        Self {
            version: FORM.version,
            failed,
        }
    }

    /// The file in `state_dir`.
    pub fn path(state_dir: &Path) -> PathBuf {
        state_dir.join(FILE)
    }

    /// What the last restore could not do.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or was not written by this version of tranche.
    pub fn read(state_dir: &Path) -> Result<Vec<FailedRestore>> {
        let read = FORM.read(&Self::path(state_dir), |read: &Self| read.version)?;
        Ok(read.map(|read| read.failed).unwrap_or_default())
    }

    /// Writes it; without a failure, removes the file.
    ///
    /// # Errors
    /// Returns an error if it cannot be written or removed.
    pub fn write(&self, state_dir: &Path) -> Result<()> {
        match self.failed.is_empty() {
            true => replace::remove(&Self::path(state_dir)),
            false => FORM.write(&Self::path(state_dir), self),
        }
    }

    /// Forgets the failures of GPUs that a person has given a layout since.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written.
    pub fn forget(state_dir: &Path, gpus: &[GpuUuid]) -> Result<()> {
        let mut failed = Self::read(state_dir)?;
        let before = failed.len();
        failed.retain(|one| one.gpu.as_ref().is_none_or(|gpu| !gpus.contains(gpu)));
        match failed.len() < before {
            true => Self::new(failed).write(state_dir),
            false => Ok(()),
        }
    }
}
