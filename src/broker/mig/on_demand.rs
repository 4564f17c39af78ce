//! The instances that were made because somebody asked for one, and that are destroyed when nobody uses them any more.
//!
//! The file is in the state directory, which does not outlive a boot, and neither do the instances.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use tranche_core::error::Result;
use tranche_core::types::{DeviceKey, MigUuid};
use tranche_plan::mig::{GpuInstance, MigGpu};
use tranche_state::state_file::FileForm;

const FILE: &str = "mig-on-demand.json";

const FORM: FileForm = FileForm {
    version: 1,
    invalid: "is not valid",
    hint: "remove it; tranche mig apply destroys instances that it has",
};

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

impl OnDemandInstance {
    /// The MIG device on `instance` of `gpu`; `None` if it has none, or if the driver does not say its UUID.
    pub fn of(gpu: &MigGpu, instance: &GpuInstance) -> Option<Self> {
        let compute = instance.compute.first()?;
        Some(Self {
            device: DeviceKey::mig(gpu.uuid.clone(), instance.id, compute.id),
            uuid: compute.uuid.clone()?,
        })
    }
}

impl OnDemandInstances {
    /// The file, of a node whose ledger is in `state_dir`.
    pub fn path(state_dir: &Path) -> PathBuf {
        state_dir.join(FILE)
    }

    /// Forgets an instance that does not exist any more.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or written.
    pub fn forget(state_dir: &Path, uuid: &MigUuid) -> Result<()> {
        let mut all = Self::read(state_dir)?;
        all.made.retain(|one| one.uuid != *uuid);
        all.write(state_dir)
    }

    /// Puts `made` in the place of the instance with this UUID. Returns whether there was one, and it differs.
    pub(super) fn follow(&mut self, uuid: &MigUuid, made: OnDemandInstance) -> bool {
        let old = self.made.iter_mut().find(|one| one.uuid == *uuid && **one != made);
        old.map(|old| *old = made).is_some()
    }

    /// Those of a node whose ledger is in `state_dir`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or was not written by this version of tranche.
    pub fn read(state_dir: &Path) -> Result<Self> {
        let read = FORM.read(&Self::path(state_dir), |read: &Self| read.version)?;
        Ok(read.unwrap_or(Self {
            version: FORM.version,
            made: Vec::new(),
        }))
    }

    /// Records an instance that was made.
    pub(super) fn add(&mut self, made: OnDemandInstance) {
        self.made.retain(|one| one.uuid != made.uuid);
        self.made.push(made);
    }

    /// Writes it.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub fn write(&self, state_dir: &Path) -> Result<()> {
        FORM.write(&Self::path(state_dir), self)
    }
}
