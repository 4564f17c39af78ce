//! What may be done with a specification whose host was not examined completely.
//!
//! Such a specification lacks devices or files that may come back by themselves: after a reboot, or once the driver
//! answers again. It never replaces an older file, because containers that run today would lose their devices.

use std::path::Path;
use tranche_core::error::{Error, Kind, Result};
use tranche_host::examine;
use tranche_plan::derive::{self, DeviceChoice, Mode, Options};
use tranche_plan::inventory::Inventory;

/// Whether a specification describes its host completely.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Why it does not; `None` if it does, or if the caller accepts that it does not (`--degraded`).
    missing: Option<String>,
}

impl Outcome {
    /// The outcome for a specification that is made from `inventory` with `options`. Modes that are about other devices
    /// than GPUs do not depend on what can be degraded.
    pub(crate) fn of(inventory: &Inventory, options: &Options, accept_degraded: bool) -> Self {
        let choices: &[DeviceChoice] = match options.mode {
            Mode::Auto | Mode::Nvml => &options.devices,
            // A container that manages the host gets every device.
            Mode::Management => &[],
            _ => return Self { missing: None },
        };
        let missing = derive::missing_from(inventory, choices, &options.capabilities);
        let missing = examine::missing(&missing).filter(|_| !accept_degraded);
        Self { missing }
    }

    /// Turns "nothing to do" into a failure where something shows a driver: then there is something to do.
    pub(crate) fn of_failure(&self, error: Error) -> Error {
        match &self.missing {
            Some(missing) if error.kind() == Kind::Nothing => {
                Error::failed("host", format!("no device to write: {missing}"))
            }
            _ => error,
        }
    }

    /// Checks that none of `files`, which are to be written, exists already.
    ///
    /// # Errors
    /// Returns an error if the specification is degraded and would replace a file.
    pub(crate) fn may_write<'a>(&self, mut files: impl Iterator<Item = &'a Path>) -> Result<()> {
        let Some(missing) = &self.missing else { return Ok(()) };
        let Some(file) = files.find(|file| file.symlink_metadata().is_ok()) else {
            return Ok(());
        };
        let what = format!("not replaced, because the host was not examined completely: {missing}");
        Err(Error::failed(file.display(), what).hint("repair that, or give --degraded to write what was found"))
    }

    /// What is missing; `None` if the specification is complete.
    pub(crate) fn missing(&self) -> Option<&str> {
        self.missing.as_deref()
    }

    /// Whether the specification is complete.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing.is_none()
    }
}
