//! What the specifications on this machine call the devices and shares of the ledger. The ledger knows a device by a
//! key that does not move; a person knows it by the name that the specification gives it.

use crate::claim_spec::{claim_of, is_same};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tranche_core::call::ClaimCall;
use tranche_core::ledger::{Bounds, Claim, HeldShare, Holder, Promise};
use tranche_core::text::some;
use tranche_core::types::{DeviceKey, Part, Subject};
use tranche_plan::cdi::registry::Registry;
use tranche_plan::share::{Plan, SplitDevice};

/// The devices and shares that specifications offer with a claim in one state directory.
#[derive(Debug, Default)]
pub struct Specs {
    devices: BTreeMap<DeviceKey, Offered>,
    /// Every name, and the device or share that it names.
    names: BTreeMap<String, (DeviceKey, Part)>,
}

/// One device that is handed out with a claim.
#[derive(Debug, Default)]
pub struct Offered {
    /// The name of the device, `nvidia.com/gpu=0`, whether or not the policy hides it.
    name: Option<String>,
    /// The shares that have a name of their own: the shortest name that specifications give them (index names are
    /// shorter than UUIDs), and the size.
    shares: BTreeMap<String, (String, Promise)>,
    /// The shares that the device has, in the order of the policy.
    pub siblings: Vec<String>,
    /// The size of each of equal replicas.
    replica: Option<Promise>,
    /// The most that may be promised of the device to all holders together.
    pub bounds: Bounds,
}

impl Offered {
    /// How much of the device a share is; `None` where no specification offers the share.
    pub fn size(&self, share: &str) -> Option<Promise> {
        self.shares.get(share).map(|(_, size)| *size).or(self.replica)
    }
}

impl Specs {
    /// Reads the specifications in `dirs`, in which later ones take precedence. Those that belong to another state
    /// directory are skipped, and files that no engine can read are too: `tranche cdi validate` reports them.
    pub fn read(dirs: &[PathBuf], state_dir: &Path) -> Self {
        let mut specs = Self::default();
        let registry = Registry::read(dirs);
        for (name, found) in registry.devices() {
            let Some(call) = claim_of(found.device) else {
                continue;
            };
            if is_same(call.state_dir.as_path(), state_dir) {
                specs.add(&name.to_string(), call);
            }
        }
        specs
    }

    /// The devices of a plan, for which there may be no specification yet.
    pub fn of_plan(plan: &Plan) -> Self {
        let offered = |split: &SplitDevice| Offered {
            name: Some(format!("{}={}", split.kind, split.device.cdi_name())),
            siblings: split.shares.iter().map(|s| s.name.to_string()).collect(),
            ..Offered::default()
        };
        let devices = plan.devices.iter().map(|split| (split.key.clone(), offered(split)));
        Self {
            devices: devices.collect(),
            ..Self::default()
        }
    }

    fn add(&mut self, name: &str, call: ClaimCall) {
        /// A specification that another program has written may name more replicas than any device has.
        const MOST_SIBLINGS: usize = 100_000;
        let device = call.device;
        let Subject::Part(part, size) = call.subject else {
            return;
        };
        let offered = self.devices.entry(device.clone()).or_default();
        let bounds = call.bounds.unwrap_or_default();
        let base = match &part {
            Part::Share(share) => {
                offered.bounds = bounds;
                let known = offered.shares.entry(share.to_string());
                let (shortest, _) = known.or_insert_with(|| (name.to_owned(), size));
                if name.len() < shortest.len() {
                    name.clone_into(shortest);
                }
                name.strip_suffix(&format!(".{share}"))
            }
            Part::Any => {
                (offered.replica, offered.bounds) = (Some(size), bounds);
                name.strip_suffix(".any")
            }
            Part::Whole => Some(name),
        };
        if let Some(base) = base
            && offered.name.as_ref().is_none_or(|n| base.len() < n.len())
        {
            offered.name = Some(base.to_owned());
        }
        if offered.siblings.is_empty() {
            offered.siblings = call.siblings.names().take(MOST_SIBLINGS).collect();
        }
        self.names.insert(name.to_owned(), (device, part));
    }

    /// The devices, by key.
    pub fn devices(&self) -> impl Iterator<Item = (&DeviceKey, &Offered)> {
        self.devices.iter()
    }

    /// The name of a device; `None` if no specification offers it with a claim.
    pub fn named(&self, key: &DeviceKey) -> Option<String> {
        self.devices.get(key).and_then(|offered| offered.name.clone())
    }

    /// The name of a device; its key where no specification offers it.
    pub fn device(&self, key: &DeviceKey) -> String {
        self.named(key).unwrap_or_else(|| key.to_string())
    }

    /// The name under which an engine was asked for what `claim` holds.
    pub fn name(&self, claim: &Claim) -> String {
        // What a user's own engine asked for is the user's word.
        let is_of_user = matches!(claim.holder, Holder::Rootless { .. });
        match (claim.given_name(), &claim.asked_as) {
            (Some(name), _) => format!("nvidia.com/claim={name}"),
            (None, Some(name)) if !is_of_user => name.clone(),
            (None, _) => self.part_name(claim),
        }
    }

    /// The name that no other claim has: the claim's own, or that of the device or share that it holds.
    pub fn own_name(&self, claim: &Claim) -> String {
        match (claim.given_name(), &claim.name) {
            (Some(name), _) => format!("nvidia.com/claim={name}"),
            // Made for the start of one container. The names of many shares are no name of the claim.
            (None, Some(name)) if claim.part.shares().len() > 1 => name.clone(),
            (None, _) => self.part_name(claim),
        }
    }

    /// The name of the device or shares that `claim` holds.
    pub fn part_name(&self, claim: &Claim) -> String {
        let device = self.device(&claim.device);
        let offered = self.devices.get(&claim.device);
        let name = |share: &HeldShare| match offered.and_then(|offered| offered.shares.get(share.name.as_str())) {
            Some((name, _)) => name.clone(),
            None => format!("{device}.{}", share.name),
        };
        match claim.part.shares() {
            [] => device,
            shares => some(&shares.iter().map(name).collect::<Vec<_>>()),
        }
    }

    /// The devices and shares that a person means by `typed`.
    pub fn meant(&self, typed: &str) -> Vec<&(DeviceKey, Part)> {
        let found = self.names.iter().filter(|(name, _)| is_named(name, typed));
        found.map(|(_, meant)| meant).collect()
    }
}

/// Whether a person means the device `name` by `typed`: the whole name, or what is behind its `=`.
pub fn is_named(name: &str, typed: &str) -> bool {
    name == typed || name.split_once('=').is_some_and(|(_, rest)| rest == typed)
}
