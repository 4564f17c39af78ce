//! `tranche-oci hook in-service`: a container does not start with a device that is out of service.
//!
//! A device that no policy names is handed out without a claim, so no claim of it can be refused. Its names get this
//! hook while it is out of service, or will be.

use super::Program;
use super::options::{OnUnknown, ValueKind, default_state_dir, host_path, push_state_dir, read};
use crate::error::{Error, Result};
use crate::types::{DeviceKey, HostPath};
use std::ffi::OsString;

/// A call of `hook in-service`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InServiceCall {
    /// The device.
    pub device: DeviceKey,
    /// Its name in messages.
    pub label: String,
    /// Where the ledger is.
    pub state_dir: HostPath,
}

impl InServiceCall {
    /// The hook's name.
    pub const VERB: &str = "in-service";

    pub(super) const OPTIONS: &[(&str, ValueKind)] = &[
        ("device", ValueKind::Text),
        ("label", ValueKind::Text),
        ("state-dir", ValueKind::Host),
    ];

    /// The whole command line.
    pub fn write(&self) -> Vec<String> {
        let mut options = vec![format!("--device={}", self.device), format!("--label={}", self.label)];
        push_state_dir(&mut options, &self.state_dir);
        Program::Tranche.command(Self::VERB, options)
    }

    /// Parses the arguments after the verb.
    ///
    /// # Errors
    /// Returns a usage error for a known option without a value or with an invalid one and for a call without a device,
    /// and the errors of `unknown`.
    pub fn parse(arguments: Vec<OsString>, unknown: OnUnknown<'_>) -> Result<Self> {
        let (mut device, mut label) = (None, None);
        let mut state_dir = default_state_dir();
        read(arguments, Self::OPTIONS, unknown, |name, value, _| {
            match name {
                "device" => device = Some(value.parse()?),
                "label" => label = Some(value),
                _ => state_dir = host_path(name, &value)?,
            }
            Ok(())
        })?;
        let device: DeviceKey = device.ok_or_else(|| Error::usage("arguments", "--device is missing"))?;
        Ok(Self {
            label: label.unwrap_or_else(|| device.to_string()),
            device,
            state_dir,
        })
    }
}
