//! What every user may know of the shares: the file that the broker writes for everybody.

use std::collections::BTreeMap;
use std::path::Path;
use tranche_core::error::line;
use tranche_state::device::DeviceStatus;
use tranche_state::public_status::PublicStatus;

/// What the broker wrote.
#[derive(Debug, Default)]
pub(crate) struct Public {
    /// Its file; `None` if it is missing or cannot be read.
    pub(crate) status: Option<PublicStatus>,
    /// What of it is held and free.
    pub(crate) devices: Vec<DeviceStatus>,
}

impl Public {
    /// What the broker of `state_dir` wrote. A file that is missing or damaged is nothing.
    pub(crate) fn read(state_dir: &Path) -> Self {
        let status = PublicStatus::read(state_dir).unwrap_or_else(|error| {
            tracing::warn!("{}", line(&error));
            None
        });
        let devices = status.iter().flat_map(|status| {
            let devices = status.devices.iter();
            devices.map(|device| DeviceStatus::of_public(device, status.plan_known))
        });
        Self {
            devices: devices.collect(),
            status,
        }
    }

    /// The names of the devices, by their keys in the ledger.
    pub(crate) fn names(&self) -> BTreeMap<String, &str> {
        let devices = self.devices.iter();
        devices
            .map(|device| (device.key.to_string(), device.device.as_str()))
            .collect()
    }
}
