//! What is asked of the broker for layouts of MIG.

use crate::broker::{BrokerError, SOCKET, ask};
use crate::error::{Error, Result};
use crate::types::{DeviceSelector, MigProfile};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// Layouts that are applied to GPUs.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MigRequest {
    /// The layouts, as `--layout` has them: `GPU-…:3g.20gb@0,1g.5gb@4`.
    pub layouts: Vec<String>,
    /// What the GPUs had when the plan was shown, in the same form. The request is refused if they have something else
    /// by now. Empty: whatever they have.
    #[serde(default)]
    pub seen: Vec<String>,
    /// Whether the MIG mode of a GPU may change.
    #[serde(default)]
    pub may_change_mode: bool,
    /// Whether a GPU may be reset for that.
    #[serde(default)]
    pub may_reset: bool,
    /// Services that may be stopped meanwhile.
    #[serde(default)]
    pub services: Vec<String>,
}

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

/// The answer to [`MigRequest`].
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigAnswer {
    /// The UUIDs of the GPUs that were changed.
    pub changed: Vec<String>,
}
