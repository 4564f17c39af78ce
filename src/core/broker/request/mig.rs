//! An instance of MIG that a start asks for.

use crate::broker::{BrokerError, SOCKET, ask};
use crate::error::{Error, Result};
use crate::types::{DeviceSelector, MigProfile};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// An instance that is made because somebody asks for one.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct MigMakeRequest {
    /// Its profile.
    pub profile: MigProfile,
}

impl MigMakeRequest {
    /// Has the broker of `state_dir` make the instance, or find one that nobody uses. It is destroyed soon if nothing
    /// claims it. The specifications are up to date afterwards.
    ///
    /// # Errors
    /// Returns why it cannot be had, or how the broker is started.
    pub fn ask(&self, state_dir: &Path) -> Result<DeviceSelector> {
        match ask::<MigMakeAnswer>(&state_dir.join(SOCKET), self, PATIENCE) {
            Ok(answer) => Ok(answer.device),
            Err(BrokerError::Refused(error)) => Err(error),
            Err(BrokerError::Unreachable(error)) => Err(Error::failed(
                &self.profile,
                "the broker, which makes instances, cannot be reached",
            )
            .from_source(error)
            .hint("start it: systemctl start tranche-broker.socket, or tranche broker &")),
        }
    }
}

/// How long the broker may take to make an instance, and to bring the specifications up to date.
const PATIENCE: Duration = Duration::from_secs(60);

/// The answer to [`MigMakeRequest`].
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct MigMakeAnswer {
    /// The MIG device, by its UUID.
    pub device: DeviceSelector,
}
