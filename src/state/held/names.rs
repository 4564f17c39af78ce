//! What the devices and shares of the ledger are called on this machine. The ledger knows a device by a key that does
//! not move; a person knows it by the name that the specifications of the last refresh give it. host.json has what
//! they were made from, so no specification is read: their number and size do not count, nor what others put there.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tranche_core::ledger::{Claim, HeldPart, HeldShare, Holder};
use tranche_core::text::some;
use tranche_core::types::{CdiKind, DeviceKey, DevicePart, Part};
use tranche_plan::host_file::HostFile;
use tranche_plan::inventory::{Driver, Inventory};
use tranche_plan::share::{Plan, SplitDevice};

/// The names of devices and shares.
#[derive(Debug, Default)]
pub struct DeviceNames {
    inventory: Option<Inventory>,
    plan: Arc<Plan>,
    names: BTreeMap<DeviceKey, String>,
}

impl DeviceNames {
    /// The names of the last refresh, whether or not it still describes the host. Where it left nothing that can be
    /// read, devices have the names that the ledger has for them.
    pub fn of_host(state_dir: &Path) -> Self {
        HostFile::load(state_dir).map_or_else(|_| Self::default(), |file| Self::new(file.inventory, file.plan))
    }

    /// The names of the devices of `inventory` under `plan`.
    pub fn new(inventory: Inventory, plan: impl Into<Arc<Plan>>) -> Self {
        let plan: Arc<Plan> = plan.into();
        let plain = inventory.catalogue();
        let plain = plain
            .all()
            .map(|device| (device.key(), format!("{}={}", CdiKind::nvidia_gpu(), device.name())));
        let shared = plan
            .devices
            .iter()
            .map(|split| (split.key.clone(), format!("{}={}", split.kind, split.device.cdi_name())));
        Self {
            names: plain.chain(shared).collect(),
            inventory: Some(inventory),
            plan,
        }
    }

    /// The devices that are handed out with a claim.
    pub fn shared(&self) -> &[SplitDevice] {
        &self.plan.devices
    }

    /// The driver of the last refresh.
    pub fn driver(&self) -> Option<&Driver> {
        self.inventory.as_ref()?.driver.as_ref()
    }

    /// The host of the last refresh.
    pub fn inventory(&self) -> Option<&Inventory> {
        self.inventory.as_ref()
    }

    /// The name of a device; `None` for one that the host does not have.
    pub fn named(&self, key: &DeviceKey) -> Option<&str> {
        self.names.get(key).map(String::as_str)
    }

    /// The name of a device; its key, if the host does not have it.
    pub fn device(&self, key: &DeviceKey) -> String {
        self.named(key).map_or_else(|| key.to_string(), str::to_owned)
    }

    /// The name under which an engine was asked for what `claim` holds.
    pub fn name(&self, claim: &Claim) -> String {
        // What a user's own engine asked for is the user's word.
        let is_of_user = matches!(claim.holder, Holder::Rootless { .. });
        match (claim.given_name(), &claim.asked_as) {
            (Some(name), _) => CdiKind::of_claim(name),
            (None, Some(name)) if !is_of_user => name.clone(),
            (None, _) => self.part_name(claim),
        }
    }

    /// The name that no other claim has: the claim's own, or that of the device or share that it holds.
    pub fn own_name(&self, claim: &Claim) -> String {
        match (claim.given_name(), &claim.name) {
            (Some(name), _) => CdiKind::of_claim(name),
            // Made for the start of one container. The names of many shares are no name of the claim.
            (None, Some(name)) if claim.part.shares().len() > 1 => name.clone(),
            (None, _) => self.part_name(claim),
        }
    }

    /// The name of the device or shares that `claim` holds.
    pub fn part_name(&self, claim: &Claim) -> String {
        let device = self.device(&claim.device);
        let name = |share: &HeldShare| format!("{device}.{}", share.name);
        match claim.part.shares() {
            [] => device,
            shares => some(&shares.iter().map(name).collect::<Vec<_>>()),
        }
    }

    /// Whether a person means by `typed` the device that `claim` holds, or a share of it that `claim` holds.
    pub fn means(&self, typed: &str, claim: &Claim) -> bool {
        if is_named(&self.part_name(claim), typed) {
            return true;
        }
        // Other forms of the same name: GPU-…, a PCI address, /dev/nvidia0.
        let Ok(DevicePart { device, part }) = typed.parse::<DevicePart>() else {
            return false;
        };
        let host = self.inventory.as_ref();
        let found = host.and_then(|host| host.catalogue().find(&device));
        found.is_some_and(|device| device.key() == claim.device)
            && match part {
                Part::Whole => claim.part == HeldPart::Whole,
                Part::Share(name) => claim.part.shares().iter().any(|share| share.name == name),
                Part::Any => false,
            }
    }
}

/// Whether a person means the device `name` by `typed`: the whole name, or what is behind its `=`.
pub fn is_named(name: &str, typed: &str) -> bool {
    name == typed || name.split_once('=').is_some_and(|(_, rest)| rest == typed)
}
