//! The instances that were made because somebody asked for one, and that are destroyed when nobody uses them any more.
//!
//! The file is in the state directory, which does not outlive a boot, and neither do the instances.

use crate::replace;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tranche_core::broker::{self, BrokerError, MigMakeAnswer, MigMakeRequest};
use tranche_core::error::{Context, Error, Result};
use tranche_core::types::{DeviceKey, DeviceSelector, MigProfile, MigUuid};

const FILE: &str = "mig-on-demand.json";

/// The version of the form. Fields are added without a new version.
const VERSION: u32 = 1;

/// How long the broker may take to make an instance, and to bring the specifications up to date.
const PATIENCE: Duration = Duration::from_secs(60);

/// The instances that exist because somebody asked for one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnDemandInstances {
    version: u32,
    /// Each of them.
    pub made: Vec<OnDemandInstance>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnDemandInstance {
    /// As the ledger knows it.
    pub device: DeviceKey,
    /// Its MIG device: another instance may get the same numbers, and never the same UUID.
    pub uuid: MigUuid,
}

impl OnDemandInstances {
    /// Those of a node whose ledger is in `state_dir`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or was not written by this version of tranche.
    pub fn read(state_dir: &Path) -> Result<Self> {
        let path = path(state_dir);
        let bytes = match std::fs::read(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Ok(Self {
                    version: VERSION,
                    made: Vec::new(),
                });
            }
            read => read.about(path.display(), "cannot be read")?,
        };
        let unreadable = |what: &str| {
            Error::failed(path.display(), what).hint("remove it; tranche mig apply destroys instances that it has")
        };
        let read: Self = serde_json::from_slice(&bytes).map_err(|e| unreadable("is not valid").from_source(e))?;
        match read.version {
            VERSION => Ok(read),
            _ => Err(unreadable("was written by another version of tranche")),
        }
    }

    /// Writes it.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub fn write(&self, state_dir: &Path) -> Result<()> {
        let path = path(state_dir);
        let text = serde_json::to_string(self).about(path.display(), "cannot be written")?;
        replace::write(&path, &text)
    }
}

fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

/// Has the broker make an instance of this profile, or find one that nobody uses. It is destroyed soon if nothing
/// claims it.
///
/// # Errors
/// Returns why it cannot be had, or how the broker is started.
pub fn make_on_demand(state_dir: &Path, profile: MigProfile) -> Result<DeviceSelector> {
    let request = MigMakeRequest { profile };
    match broker::ask::<MigMakeAnswer>(&state_dir.join(broker::SOCKET), &request, PATIENCE) {
        Ok(answer) => Ok(answer.device),
        Err(BrokerError::Refused(error)) => Err(error),
        Err(BrokerError::Unreachable(error)) => Err(Error::failed(
            request.profile,
            "the broker, which makes instances, cannot be reached",
        )
        .from_source(error)
        .hint("start it: systemctl start tranche-broker.socket, or tranche broker &")),
    }
}
