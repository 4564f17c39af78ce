//! What may be done with a specification whose host was not examined completely.
//!
//! Such a specification lacks devices or files that may come back by themselves: after a reboot, or once the driver
//! answers again. It never replaces an older file, because containers that run today would lose their devices.

use crate::cli::{look, out};
use crate::derive::Mode;
use crate::error::{Error, Kind};
use crate::inventory::Inventory;
use anyhow::Result;
use std::path::Path;
use std::process::ExitCode;

/// Whether a specification describes its host completely.
pub(super) enum Outcome {
    /// It does, or the caller accepts that it does not (`--degraded`).
    Complete,
    /// It does not, for these reasons.
    Degraded(String),
}

impl Outcome {
    /// The outcome for a specification of `mode` that is made from `inventory`. Modes that are about other devices than
    /// GPUs do not depend on what can be degraded.
    pub(super) fn of(inventory: &Inventory, mode: Mode, accept_degraded: bool) -> Self {
        let is_about_gpus = matches!(mode, Mode::Auto | Mode::Nvml | Mode::Management);
        match inventory.degraded.is_empty() || accept_degraded || !is_about_gpus {
            true => Self::Complete,
            false => Self::Degraded(look::reasons(inventory)),
        }
    }

    /// Turns "nothing to do" into a failure where something shows a driver: then there is something to do.
    pub(super) fn of_failure(&self, error: Error) -> Error {
        match self {
            Self::Degraded(reasons) if error.kind() == Kind::Nothing => {
                Error::failed("host", format!("no device to write: {reasons}"))
            }
            _ => error,
        }
    }

    /// Checks that none of `files`, which are to be written, exists already.
    ///
    /// # Errors
    /// Returns an error if the specification is degraded and would replace a file.
    pub(super) fn may_write<'a>(&self, files: impl IntoIterator<Item = &'a Path>) -> Result<()> {
        let Self::Degraded(reasons) = self else { return Ok(()) };
        match files.into_iter().find(|file| file.symlink_metadata().is_ok()) {
            None => Ok(()),
            Some(file) => Err(Error::failed(
                file.display(),
                format!("not replaced, because the host was not examined completely: {reasons}"),
            )
            .hint("repair that, or give --degraded to write what was found")
            .into()),
        }
    }

    /// Whether the specification is complete.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self, Self::Complete)
    }

    /// Reports what is missing, and gives the exit code for a specification that was written or printed.
    pub(super) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Complete => ExitCode::SUCCESS,
            Self::Degraded(reasons) => {
                out::note(format_args!("tranche: not complete: {reasons}"));
                out::code(Kind::Failed)
            }
        }
    }
}
