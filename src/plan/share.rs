//! From a policy and an inventory to a plan: which shares there are, how large, and what each is worth.
//!
//! Equal policies and equal inventories give equal plans, in whatever order they were written. A plan that cannot hold
//! is not made: the error of [`plan`] names the device, what was requested, and what the device has.

mod absent;
mod arithmetic;
mod domain;
mod fit;
mod free;
mod guarantee;
mod kubernetes;
mod need;
mod part;
mod resolve;
mod shares;
mod strategy;
mod tries;

pub use absent::AbsentDevice;
pub use fit::{Fit, Wish, fit};
pub use free::{Free, FreeReplicas, Holds, Unused};
pub use guarantee::{Dimension, Grade, Guarantee, Guarantees};
pub use kubernetes::{
    ClaimableInstance, DraPart, KubernetesDevice, KubernetesPlan, claimable_instances, dra_devices, dra_divided,
    dra_instance, dra_limits, dra_part, dra_together, dra_watched, is_claimable_name, offers,
};
pub use need::Need;
pub use shares::{Equal, Shares};
pub use strategy::{
    Dedicated, DirectoryInContainer, InContainer, MemoryLimitBy, Method, Mps, NoCgroupLimit, TimeSlicing, Turns,
    limits_set_by,
};

use crate::inventory::{Gpu, HostDevice, Inventory};
use crate::policy::{
    Access, CalendarSettings, DeviceSet, HistoryTime, Monitors, PageNames, Parts, Placement, Policy, Priority,
    QueueSettings, Quota, ReplicaNames, Split, UserPolicy, WholeDevice,
};
use serde::{Deserialize, Serialize};
use tranche_core::error::Result;
use tranche_core::types::{
    Bounds, CdiKind, Device, DeviceKey, HeldPart, HeldShare, HostPath, MemorySize, Percent, Promise, ShareName,
    WaitTime, in_mib, in_mib_if_known,
};

/// Every share that a policy makes of an inventory, by device.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Devices that are split, by index.
    pub devices: Vec<SplitDevice>,
    /// What the names of a split device as a whole mean.
    pub whole_device: WholeDevice,
    /// Under which names equal replicas are offered.
    pub names: ReplicaNames,
    /// Which of several devices a share is taken of.
    #[serde(default, skip_serializing_if = "Placement::is_default")]
    pub placement: Placement,
    /// How long the start of a container may wait for a share, unless the container says another time.
    #[serde(default)]
    pub wait: WaitTime,
    /// What a user other than root may hold.
    #[serde(default)]
    pub quota: Quota,
    /// How the queue of users is served.
    #[serde(default, skip_serializing_if = "QueueSettings::is_default")]
    pub queue: QueueSettings,
    /// How devices and shares are reserved for later; `None`: by root alone, with the defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calendar: Option<CalendarSettings>,
    /// For how long it is recorded who held what.
    #[serde(default, skip_serializing_if = "HistoryTime::is_default")]
    pub history: HistoryTime,
    /// Whether the page of that names users.
    #[serde(default, skip_serializing_if = "PageNames::is_default")]
    pub page_names: PageNames,
    /// Who may open the device nodes of the devices.
    #[serde(default, skip_serializing_if = "Access::is_default")]
    pub access: Access,
    /// Who may open them without a claim.
    #[serde(default, skip_serializing_if = "Monitors::is_empty")]
    pub monitors: Monitors,
    /// What the policy says about users other than root.
    #[serde(default, skip_serializing_if = "UserPolicy::is_empty")]
    pub users: UserPolicy,
    /// Entries of the policy that found no device on this host.
    pub notes: Vec<String>,
    /// Choices that were made between two entries of the policy, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Devices that the policy names and that are left out, because this host does not have them or they cannot be
    /// shared as they are now, in the order of the policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<AbsentDevice>,
    /// What Kubernetes gets.
    #[serde(default)]
    pub kubernetes: KubernetesPlan,
}

/// A device that is split.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitDevice {
    /// Its indices.
    pub device: Device,
    /// Its key in the ledger, which does not change when indices do, and which is known without NVML.
    pub key: DeviceKey,
    /// Its UUID, if it is known.
    pub uuid: Option<String>,
    /// Its product name or profile.
    pub product: String,
    /// The kind under which its shares are offered.
    pub kind: CdiKind,
    /// How the shares are kept apart.
    pub method: Method,
    /// Its memory; `None` if the driver does not report it.
    pub memory: Option<MemorySize>,
    /// Whether that is the memory of the machine: the GPU has none of its own, so a share of it is one of RAM.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uses_system_memory: bool,
    /// The shares.
    pub shares: Shares,
    /// Memory that no share has.
    #[serde(rename = "memory_left_mib", with = "in_mib")]
    pub memory_left: MemorySize,
    /// Percent of compute that no share has.
    pub compute_left: u32,
    /// The most memory that may be promised to all holders together: its memory times the overcommit that the policy
    /// allows. `None` where the driver does not say how much memory there is.
    #[serde(rename = "most_memory_mib", with = "in_mib_if_known", default)]
    pub most_memory: Option<MemorySize>,
    /// The same for compute, in percent: 100 without overcommit.
    pub most_compute: u32,
    /// Memory that the shares have in sum, in percent of the device's; more than 100 under overcommit. `None` where
    /// the shares have no limit of memory, or the device's memory is unknown.
    pub memory_promised: Option<u32>,
    /// Compute that the shares have in sum, in percent of the device's; more than 100 under overcommit. `None` where
    /// the shares have no limit of compute.
    pub compute_promised: Option<u32>,
    /// A claim may ask for one share of this device and no more.
    pub one_share_a_claim: bool,
}

/// A part of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Share {
    /// Its name.
    pub name: ShareName,
    /// Its memory; `None` where it has no limit.
    pub memory: Option<MemorySize>,
    /// Its ceiling of compute; `None` where it has none.
    pub compute: Option<Percent>,
    /// MPS's hint about whose work goes first.
    pub priority: Priority,
    /// What that is worth.
    pub guarantees: Guarantees,
}

/// Makes the plan.
///
/// # Errors
/// Returns an error if a device is in two entries, if a device does not support its strategy, or if the shares are more
/// than the device has, or more than the GPU instance of several compute instances has. A device that is missing, or in
/// MIG mode, is not an error: it is in [`Plan::absent`].
pub fn plan(policy: &Policy, inventory: &Inventory) -> Result<Plan> {
    let mut resolved = resolve::targets(policy, inventory)?;
    let kubernetes = KubernetesPlan::of(policy, inventory, &mut resolved.absent, &mut resolved.warnings);
    let dedicated = Split::dedicated();
    for device in kubernetes.claimed(inventory) {
        if resolved.targets.iter().any(|(target, _)| *target == device) {
            continue;
        }
        match domain::neighbours(device).next() {
            None => resolved.targets.push((device, &dedicated)),
            Some(_) => resolved.warnings.push(format!(
                "{}: {device} is not given to Kubernetes: it shares the memory of its GPU instance with other compute \
                 instances, and the policy does not say how",
                policy.file
            )),
        }
    }
    for device in on_demand_devices(policy, inventory) {
        if resolved.targets.iter().all(|(target, _)| *target != device) {
            resolved.targets.push((device, &dedicated));
        }
    }
    let mut devices = Vec::with_capacity(resolved.targets.len());
    for (target, split) in &resolved.targets {
        devices.push(split_device(policy, inventory, *target, split)?);
    }
    domain::check(policy, &resolved.targets, &mut devices)?;
    devices.sort_by_key(|d| d.device);
    Ok(Plan {
        devices,
        whole_device: policy.whole_device,
        names: policy.names,
        placement: policy.placement,
        wait: policy.wait,
        quota: policy.quota,
        queue: policy.queue,
        calendar: policy.calendar,
        history: policy.history,
        page_names: policy.page_names,
        access: policy.access,
        monitors: policy.monitors.clone(),
        users: policy.users.clone(),
        notes: resolved.notes,
        warnings: resolved.warnings,
        absent: resolved.absent,
        kubernetes,
    })
}

/// The GPUs on which the policy lets instances of MIG be made on demand.
pub fn on_demand_gpus<'i>(policy: &Policy, inventory: &'i Inventory) -> Vec<&'i Gpu> {
    let catalogue = inventory.catalogue();
    let is_meant = |gpu: &&Gpu| match &policy.mig_on_demand {
        None => false,
        Some(DeviceSet::All) => true,
        Some(DeviceSet::Count(count)) => gpu.index.0 < *count,
        Some(DeviceSet::List(list)) => {
            let mut meant = list.iter().filter_map(|one| catalogue.find(&one.value));
            meant.any(|one| one.gpu.uuid == gpu.uuid)
        }
    };
    inventory.gpus.iter().filter(is_meant).collect()
}

/// The MIG devices of these GPUs: each belongs to one holder. One that shares the memory of its GPU instance with
/// others was not made on demand.
fn on_demand_devices<'i>(policy: &Policy, inventory: &'i Inventory) -> Vec<HostDevice<'i>> {
    let gpus = on_demand_gpus(policy, inventory);
    let is_on_one = |device: &HostDevice<'_>| gpus.iter().any(|gpu| gpu.uuid == device.gpu.uuid);
    let catalogue = inventory.catalogue();
    let is_alone = |device: &HostDevice<'_>| domain::neighbours(*device).next().is_none();
    catalogue
        .usable()
        .filter(|device| device.device().mig.is_some() && is_on_one(device) && is_alone(device))
        .collect()
}

impl Plan {
    /// Whether the policy shares no device.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty() && self.absent.is_empty() && self.notes.is_empty()
    }

    /// The plan for one device, if it is split.
    pub fn split(&self, device: Device) -> Option<&SplitDevice> {
        self.devices.iter().find(|d| d.device == device)
    }

    /// The names of the shares of a device that have one of their own. Where it has equal replicas, there is `any` as
    /// well.
    pub fn named_shares<'a>(&self, split: &'a SplitDevice) -> impl Iterator<Item = ShareName> + 'a {
        let is_numbered = split.replica().is_none() || self.names.numbered(split.shares.len());
        let most = match is_numbered && !split.method.is_whole() {
            true => usize::MAX,
            false => 0,
        };
        split.shares.names().take(most)
    }
}

impl SplitDevice {
    /// What its share with this name is. Of equal replicas, only the name differs.
    pub fn share(&self, name: &ShareName) -> Option<&Share> {
        self.shares.get(name)
    }

    /// What a share of it promises.
    pub fn promise(&self, share: &Share) -> Promise {
        self.method.rules().promise(self, share)
    }

    /// What a claim on the shares with these names holds: a dedicated device is held whole. A name that the device does
    /// not have is left out.
    pub fn part(&self, names: &[ShareName]) -> HeldPart {
        if self.method.is_whole() {
            return HeldPart::Whole;
        }
        let held = |name: &ShareName| {
            Some(HeldShare {
                name: name.clone(),
                promise: self.promise(self.share(name)?),
            })
        };
        HeldPart::Shares(names.iter().filter_map(held).collect())
    }

    /// The most that may be promised of it to all holders together.
    pub fn bounds(&self) -> Bounds {
        Bounds {
            memory: self.most_memory,
            compute: Percent::of_sum(self.most_compute),
        }
    }

    /// One of its replicas, which differ only in their number. `None` if its shares are not equal and have names from
    /// the policy.
    pub fn replica(&self) -> Option<&Share> {
        match &self.shares {
            Shares::Equal(equal) => Some(&equal.each),
            Shares::Named(_) => None,
        }
    }

    /// How many equal replicas it has; 0 if its shares have names from the policy.
    pub fn replicas(&self) -> u32 {
        match &self.shares {
            Shares::Equal(equal) => equal.count,
            Shares::Named(_) => 0,
        }
    }

    /// What must be running or set before a share of it is worth what the plan says.
    pub fn needs(&self, state_dir: &HostPath) -> Vec<Need> {
        self.method.rules().needs(self, state_dir)
    }

    /// What a container with `promise` of it gets in addition to the nodes of the device.
    ///
    /// # Errors
    /// Returns an error if something about the device is unknown that a limit needs.
    pub fn in_container(&self, promise: Promise, priority: Priority, state_dir: &HostPath) -> Result<InContainer> {
        self.method.rules().in_container(self, promise, priority, state_dir)
    }
}

fn split_device(policy: &Policy, inventory: &Inventory, target: HostDevice<'_>, split: &Split) -> Result<SplitDevice> {
    let method = Method::new(policy, inventory, target, split)?;
    let asked = match &split.parts {
        Parts::Equal(n) => *n as usize,
        Parts::Turns(settings) => settings.holders as usize,
        Parts::Named(shares) => shares.len(),
        Parts::Whole => 1,
    };
    if let Some(most) = method.rules().most_shares(inventory)
        && asked > most.shares
    {
        let what = format!("{asked} shares, and {}", most.why);
        return Err(policy
            .wrong(split.place, target, what)
            .hint(format!("ask for at most {}", most.shares)));
    }
    let cut = arithmetic::cut(policy, target, split, method.rules())?;
    Ok(SplitDevice {
        device: target.device(),
        key: target.key(),
        uuid: target.uuid(),
        product: target.product(),
        kind: split.kind.clone(),
        method,
        memory: target.memory(),
        uses_system_memory: target.gpu.uses_system_memory,
        shares: cut.shares,
        memory_left: cut.memory_left,
        compute_left: cut.compute_left,
        most_memory: target
            .memory()
            .map(|memory| MemorySize::from_mib(policy.overcommit_memory.of(memory.mib()))),
        most_compute: u32::try_from(policy.overcommit_compute.of(100)).unwrap_or(u32::MAX),
        memory_promised: cut.memory_promised,
        compute_promised: cut.compute_promised,
        one_share_a_claim: split.fail_requests_greater_than_one,
    })
}

#[cfg(test)]
mod tests;
