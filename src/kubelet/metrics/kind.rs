//! What the devices of a claim are, for a count.

use tranche_core::types::Strategy;
use tranche_protocol::{DraDevice, DraDevices, DraKind};

/// What a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// `gpu`, `mig` or `share`.
    pub resource: &'static str,
    /// How it is shared; empty if that is not known.
    pub strategy: &'static str,
}

impl Kind {
    /// What the device of this name is, on a node that has `devices`; `None`: what it has is not known yet.
    pub fn of(name: &str, devices: Option<&DraDevices>) -> Self {
        let whole = match DraKind::of(name) {
            DraKind::Gpu => "gpu",
            DraKind::Mig => "mig",
        };
        let has = |device: &&DraDevice| {
            let mut shares = device.parts.iter().flat_map(|parts| &parts.shares);
            device.name == name || shares.any(|share| share.device == name)
        };
        let strategy = devices.and_then(|devices| match devices.devices.iter().find(has) {
            Some(device) => Some((device.strategy, device.parts.is_some())),
            // It is made for the claim, which has all of it.
            None => {
                let mut instances = devices.divided.iter().flat_map(|gpu| &gpu.instances);
                let is_made = instances.any(|instance| instance.name == name);
                is_made.then_some((Strategy::Dedicated, false))
            }
        });
        match strategy {
            Some((strategy, is_share)) => Self {
                resource: if is_share { "share" } else { whole },
                strategy: strategy.as_str(),
            },
            None => Self {
                resource: whole,
                strategy: "",
            },
        }
    }
}
