//! What Kubernetes gets of a host, and under which names it is offered to the kubelet.

mod divided;
mod dra;
mod sharing;

pub use divided::{ClaimableInstance, claimable_instances, dra_divided, dra_instance, is_claimable_name};
pub use dra::{DraPart, dra_devices, dra_part, dra_watched};
pub use sharing::{dra_limits, dra_together};

use super::absent::AbsentDevice;
use super::{Plan, SplitDevice};
use crate::inventory::{HostDevice, Inventory};
use crate::policy::{DeviceSet, Door, KubernetesEntry, Policy, Strategy};
use serde::{Deserialize, Serialize};
use tranche_core::types::{CdiKind, Device, DeviceKey, ResourceName};
use tranche_protocol::{Offer, OfferedParts, PodPlacement};

/// By which door each device goes to the kubelet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KubernetesPlan {
    /// The door of the devices that are not in the list.
    pub door: Door,
    /// The others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<KubernetesDevice>,
    /// MIG devices have the resource of whole GPUs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mig_as_gpus: bool,
    /// Which device a container of a pod gets; `None` if the policy does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<PodPlacement>,
}

impl Default for KubernetesPlan {
    fn default() -> Self {
        Self {
            door: Door::DevicePlugin,
            devices: Vec::new(),
            mig_as_gpus: false,
            placement: None,
        }
    }
}

/// A device of which the policy says what Kubernetes gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KubernetesDevice {
    /// Its indices.
    pub device: Device,
    /// Its door.
    pub door: Door,
    /// The name of its resource; `None` for NVIDIA's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<ResourceName>,
}

impl KubernetesPlan {
    /// What the section of the policy means on this host. Devices that it names and that this host lacks go to
    /// `absent`, and what of it does not fit this host to `warnings`.
    pub(super) fn of(
        policy: &Policy,
        inventory: &Inventory,
        absent: &mut Vec<AbsentDevice>,
        warnings: &mut Vec<String>,
    ) -> Self {
        let section = &policy.kubernetes;
        let mut devices: Vec<KubernetesDevice> = Vec::new();
        for entry in &section.entries {
            for found in meant(policy, entry, inventory, absent) {
                let device = found.device();
                if devices.iter().all(|other| other.device != device) {
                    devices.push(KubernetesDevice {
                        device,
                        door: entry.door.unwrap_or(section.door),
                        resource: entry.resource.clone(),
                    });
                }
            }
        }
        let mig_as_gpus = section.mig_as_gpus && is_uniform(inventory);
        if section.mig_as_gpus && !mig_as_gpus {
            warnings.push(format!(
                "{}: migStrategy: single: the devices of this host differ, so each keeps the resource of its profile for \
                 Kubernetes, as with mixed",
                policy.file
            ));
        }
        Self {
            door: section.door,
            devices,
            mig_as_gpus,
            placement: section.placement,
        }
    }

    fn entry(&self, device: Device) -> Option<&KubernetesDevice> {
        self.devices.iter().find(|entry| entry.device == device)
    }

    /// The devices of which each container must hold what it has, because a scheduler that does not see the containers
    /// gives them away.
    pub(super) fn claimed<'a>(&self, inventory: &'a Inventory) -> Vec<HostDevice<'a>> {
        let catalogue = inventory.catalogue();
        let usable = catalogue.usable();
        usable
            .filter(|device| self.door(device.device()) == Door::Dra)
            .collect()
    }

    /// A MIG device that has no entry of its own goes by the door of its GPU: it may be made for a holder.
    fn door(&self, device: Device) -> Door {
        let whole = Device { mig: None, ..device };
        let entry = self.entry(device).or_else(|| self.entry(whole));
        entry.map_or(self.door, |entry| entry.door)
    }
}

/// Whether all devices are MIG devices of one profile, or none is one. A pod that requests a device of one name must
/// get the same, whichever it gets.
fn is_uniform(inventory: &Inventory) -> bool {
    let catalogue = inventory.catalogue();
    let profile = |device: HostDevice<'_>| device.mig.map(|mig| mig.profile.as_ref().map(ToString::to_string));
    let mut profiles = catalogue.usable().map(profile);
    let first = profiles.next();
    profiles.all(|other| Some(other) == first)
}

fn meant<'a>(
    policy: &Policy,
    entry: &KubernetesEntry,
    inventory: &'a Inventory,
    absent: &mut Vec<AbsentDevice>,
) -> Vec<HostDevice<'a>> {
    let catalogue = inventory.catalogue();
    let selectors = match &entry.devices {
        DeviceSet::All => return catalogue.usable().collect(),
        DeviceSet::Count(count) => return catalogue.usable().take(*count as usize).collect(),
        DeviceSet::List(selectors) => selectors,
    };
    let mut found = Vec::new();
    for selector in selectors {
        match catalogue.find(&selector.value) {
            Some(device) => found.push(device),
            None => absent.push(AbsentDevice {
                place: selector.place.of(&policy.file),
                asked: format!("device {}", selector.value),
                why: AbsentDevice::NOT_FOUND.to_owned(),
                hint: catalogue.instead_of(&selector.value),
            }),
        }
    }
    found
}

/// What the kubelet may allocate by its device plugin, with the key of each device in the ledger. A device whose UUID
/// is unknown is left out: it has no name that survives a reboot.
pub fn offers(inventory: &Inventory, plan: &Plan) -> Vec<(DeviceKey, Offer)> {
    let catalogue = inventory.catalogue();
    let devices = catalogue
        .usable()
        .filter(|device| plan.kubernetes.door(device.device()) == Door::DevicePlugin);
    let mut all = Vec::new();
    for device in devices {
        let of_device = offers_of(device, plan).into_iter();
        all.extend(of_device.map(|offer| (device.key(), offer)));
    }
    all
}

fn offers_of(device: HostDevice<'_>, plan: &Plan) -> Vec<Offer> {
    let Some(uuid) = device.uuid() else { return Vec::new() };
    let split = plan.split(device.device());
    let own = plan.kubernetes.entry(device.device());
    let kind = split.map_or_else(CdiKind::nvidia_gpu, |split| split.kind.clone());
    let given = own.and_then(|entry| entry.resource.as_ref());
    let usual = || match plan.kubernetes.mig_as_gpus {
        true => WHOLE_GPU.to_owned(),
        false => usual_name(device),
    };
    let base = given.map_or_else(usual, ToString::to_string);
    let offer = |resource: String, parts: OfferedParts| Offer {
        resource,
        device: uuid.clone(),
        gpu: device.gpu.uuid.to_string(),
        kind: kind.to_string(),
        numa: device.gpu.numa_node,
        parts,
        one_share: split.is_some_and(|split| split.one_share_a_claim || split.method.strategy() == Strategy::Mps),
        unhealthy: None,
        out_of_service: None,
        taken: Vec::new(),
    };
    let Some(split) = split.filter(|split| !split.method.is_whole()) else {
        return vec![offer(base, OfferedParts::Whole)];
    };
    if split.replica().is_some() {
        let is_renamed = given.is_none() && kind != CdiKind::nvidia_gpu();
        let resource = match is_renamed {
            true => renamed(&base, &kind),
            false => base,
        };
        let named = plan.names.numbered(split.shares.len());
        let count = split.replicas();
        return vec![offer(resource, OfferedParts::Replicas { count, named })];
    }
    named(split)
        .map(|name| offer(format!("{base}.{name}"), OfferedParts::Shares(vec![name])))
        .collect()
}

fn named(split: &SplitDevice) -> impl Iterator<Item = String> + '_ {
    split.shares.names().map(|name| name.to_string())
}

/// The resource of whole GPUs.
const WHOLE_GPU: &str = "nvidia.com/gpu";

/// The name that NVIDIA's device plugin gives a device that is not shared (its option `migStrategy: mixed`). A resource
/// has no `+` in its name, so the plugin writes a dot in its place (internal/resource, NewMIGResourceName).
fn usual_name(device: HostDevice<'_>) -> String {
    match device.mig.and_then(|mig| mig.profile.as_ref()) {
        Some(profile) => format!("nvidia.com/mig-{}", profile.to_string().replace('+', ".")),
        None => WHOLE_GPU.to_owned(),
    }
}

/// The name of the replicas of `base`, which are offered to engines under another kind: the plugin appends the same
/// word to all resources (`nvidia.com/gpu.shared`, `nvidia.com/mig-1g.10gb.shared`), or has a name from the policy.
fn renamed(base: &str, kind: &CdiKind) -> String {
    match kind.to_string().strip_prefix("nvidia.com/gpu") {
        Some(suffix) => format!("{base}{suffix}"),
        None => kind.to_string(),
    }
}

#[cfg(test)]
mod tests;
