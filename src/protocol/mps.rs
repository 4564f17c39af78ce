//! What is asked of the broker for MPS daemons.

use serde::{Deserialize, Serialize};
use tranche_core::types::DeviceKey;

/// What to do with MPS daemons.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "lowercase")]
pub enum MpsRequest {
    /// Start the daemon of a device, and keep it until it is stopped.
    Start {
        /// The device.
        device: DeviceKey,
    },
    /// Stop the daemon of a device.
    Stop {
        /// The device.
        device: DeviceKey,
        /// Also if shares are held: containers may lose the device.
        #[serde(default)]
        force: bool,
    },
    /// Stop the daemon of a device and start it.
    Restart {
        /// The device.
        device: DeviceKey,
    },
    /// Show the devices that are changed.
    Status,
}
