//! `tranche-oci hook release`: a container that has ended releases what it held.

use super::options::{OnUnknown, ValueKind, default_state_dir, host_path, push_state_dir, read};
use super::{ClaimCall, Program};
use crate::error::{Error, Result};
use crate::types::{DeviceKey, HostPath};
use std::ffi::OsString;

/// A call of `hook release`. The table of options is in the documentation of `hook::claim`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseCall {
    /// The device of which all is released; `None`: every device.
    pub device: Option<DeviceKey>,
    /// The claim made beforehand that the container was in. It needs a device.
    pub claim: Option<String>,
    /// The specification of that claim, which is removed when the claim is gone.
    pub spec_file: Option<HostPath>,
    /// Where the ledger is.
    pub state_dir: HostPath,
}

impl Default for ReleaseCall {
    fn default() -> Self {
        Self {
            device: None,
            claim: None,
            spec_file: None,
            state_dir: default_state_dir(),
        }
    }
}

impl ReleaseCall {
    /// The hook's name.
    pub const VERB: &str = "release";

    /// Those of a claim, whose values have no effect here, and its own.
    pub(super) const OPTIONS: &[(&str, ValueKind)] = ClaimCall::OPTIONS;

    /// The whole command line.
    pub fn write(&self) -> Vec<String> {
        let mut options = Vec::new();
        options.extend(self.device.as_ref().map(|device| format!("--device={device}")));
        options.extend(self.claim.as_ref().map(|claim| format!("--claim={claim}")));
        options.extend(self.spec_file.as_ref().map(|file| format!("--spec-file={file}")));
        push_state_dir(&mut options, &self.state_dir);
        Program::Tranche.command(Self::VERB, options)
    }

    /// Whether `text`, a specification in YAML or JSON, has this call. A path with a character that the form of the
    /// file gives a meaning is not recognised, and then the answer is no.
    ///
    /// The hooks have no parser of YAML, and a specification that is removed must be the one of the claim that has
    /// ended, so every word of the call has to be there, with the same ledger.
    pub fn is_in(&self, text: &str) -> bool {
        let is_between = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '[' | ']');
        let there = || text.split(is_between);
        let words = self.write();
        let is_of_other_ledger = |word: &str| word.starts_with("--state-dir=") && !words.iter().any(|own| own == word);
        words.iter().all(|word| there().any(|found| found == word)) && !there().any(is_of_other_ledger)
    }

    /// Parses the arguments after the verb.
    ///
    /// # Errors
    /// Returns a usage error for a known option without a value or with an invalid one and for a claim without its
    /// device, and the errors of `unknown`.
    pub fn parse(arguments: Vec<OsString>, unknown: OnUnknown<'_>) -> Result<Self> {
        let mut call = Self::default();
        read(arguments, Self::OPTIONS, unknown, |name, value, _| {
            match name {
                "device" => call.device = Some(value.parse()?),
                "claim" => call.claim = Some(value),
                "spec-file" => call.spec_file = Some(host_path(name, &value)?),
                "state-dir" => call.state_dir = host_path(name, &value)?,
                _ => {}
            }
            Ok(())
        })?;
        if call.claim.is_some() && call.device.is_none() {
            return Err(Error::usage("arguments", "--device is missing"));
        }
        Ok(call)
    }
}
