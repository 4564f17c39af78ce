//! `last-policy.json` in `/var/lib/tranche`: the policy that the last refresh has applied. It stays in force while the
//! policy that somebody has written since is not valid, or does not fit this host.

use super::PolicyOptions;
use crate::state_file::{self, FileForm};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Result};
use tranche_core::ledger::kept_dir;

/// The version of the file's form.
const VERSION: u32 = 1;

const FORM: FileForm = FileForm {
    version: VERSION,
    invalid: "is not valid",
    hint: "remove it; the next refresh with a valid policy writes it again",
};

/// A policy that was valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastPolicy {
    version: u32,
    /// The file that had it.
    pub file: PathBuf,
    /// What was in the file.
    pub text: String,
}

impl LastPolicy {
    /// Where it is kept for the ledger in `state_dir`.
    fn path(state_dir: &Path) -> PathBuf {
        kept_dir(state_dir).join("last-policy.json")
    }

    /// Keeps the policy that `options` name, which was applied. Without a policy, none is kept.
    ///
    /// # Errors
    /// Returns an error if it cannot be read or written.
    pub fn keep(options: &PolicyOptions, state_dir: &Path) -> Result<()> {
        let path = Self::path(state_dir);
        let Some(file) = options.to_read() else {
            return state_file::remove(&path);
        };
        let text = std::fs::read_to_string(&file).about(file.display(), "cannot be read")?;
        let last = Self {
            version: VERSION,
            file,
            text,
        };
        if Self::read(state_dir).is_ok_and(|kept| kept.as_ref() == Some(&last)) {
            return Ok(());
        }
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).about(directory.display(), "cannot be made")?;
        }
        FORM.write(&path, &last)
    }

    /// `options` with the policy that was kept for the file that they name; `None` if none was kept for it.
    ///
    /// # Errors
    /// Returns an error if the kept one cannot be read.
    pub fn instead_of(options: &PolicyOptions, state_dir: &Path) -> Result<Option<PolicyOptions>> {
        let last = Self::read(state_dir)?.filter(|last| Some(&last.file) == options.to_read().as_ref());
        Ok(last.map(|last| PolicyOptions {
            last: Some(last),
            ..options.clone()
        }))
    }

    fn read(state_dir: &Path) -> Result<Option<Self>> {
        FORM.read(&Self::path(state_dir), |last: &Self| last.version)
    }
}
