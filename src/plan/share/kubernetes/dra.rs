//! What the driver for dynamic resource allocation of Kubernetes gets of a host.
//!
//! A device has one name on the node, and each share of the policy has another. They are made of numbers that the
//! driver of the GPU keeps while the machine runs, and not of indices.

use super::divided::is_claimable_name;
use super::{Plan, SplitDevice};
use crate::inventory::{AddressingMode, Architecture, HostDevice, Inventory};
use crate::mig::Engines;
use crate::policy::Priority;
use crate::share::Share;
use std::collections::BTreeSet;
use tranche_core::error::{Error, Result};
use tranche_core::types::{Device, DeviceKey, HeldPart, HeldShare, MemorySize, Percent, Promise, ShareName};
use tranche_protocol::{AllocatedDevice, DraDevice, DraEngines, DraGpu, DraKind, DraMig, DraParts, DraShare};

/// The devices that the driver may publish, each with its key in the ledger: in the order of their indices.
pub fn dra_devices(inventory: &Inventory, plan: &Plan) -> Vec<(DeviceKey, DraDevice)> {
    let devices = plan.kubernetes.claimed(inventory).into_iter();
    let offered = devices.filter_map(|device| {
        let split = plan.split(device.device())?;
        Some((split.key.clone(), dra_device(inventory, device, split)?))
    });
    offered.collect()
}

/// A MIG device whose UUID is unknown is left out: nobody could tell it from a later one of its place.
fn dra_device(inventory: &Inventory, device: HostDevice<'_>, split: &SplitDevice) -> Option<DraDevice> {
    let name = name_of(device);
    let mig = match device.mig {
        None => None,
        Some(mig) => Some(DraMig {
            uuid: Some(mig.uuid.as_ref()?.to_string()),
            profile: mig.profile.as_ref().map(ToString::to_string),
            engines: mig.engines.map(dra_engines),
        }),
    };
    let first = split.shares.first();
    let grade = |of: fn(&Share) -> String| first.map_or_else(String::new, of);
    Some(DraDevice {
        gpu: dra_gpu(device),
        mig,
        memory: device.memory(),
        multiprocessors: device.sms(),
        strategy: split.method.strategy(),
        memory_guarantee: grade(|share| share.guarantees.memory.grade.to_string()),
        compute_guarantee: grade(|share| share.guarantees.compute.grade.to_string()),
        parts: (!split.method.is_whole()).then(|| parts(inventory, &name, split)),
        unhealthy: None,
        out_of_service: None,
        held: Vec::new(),
        name,
    })
}

pub(super) fn dra_gpu(device: HostDevice<'_>) -> DraGpu {
    let gpu = device.gpu;
    DraGpu {
        name: gpu_name(device),
        uuid: gpu.uuid.to_string(),
        index: gpu.index_is_known.then_some(gpu.index.0),
        minor: gpu.minor.0,
        product: gpu.name.clone(),
        brand: gpu.brand.clone(),
        architecture: gpu
            .architecture
            .map(|architecture| architecture_name(architecture).to_owned()),
        compute_capability: gpu.compute_capability.map(|capability| capability.to_string()),
        pci: gpu.pci.to_string(),
        numa: gpu.numa_node,
        pcie_root: gpu.pcie_root.clone(),
        addressing: gpu.addressing.map(|mode| addressing_name(mode).to_owned()),
    }
}

pub(super) fn dra_engines(engines: Engines) -> DraEngines {
    let Engines {
        copy,
        decoders,
        encoders,
        jpeg,
        ofa,
    } = engines;
    DraEngines {
        copy,
        decoders,
        encoders,
        jpeg,
        ofa,
    }
}

/// As NVIDIA's driver for DRA writes it (`resource.k8s.io`, attribute `architecture`).
fn architecture_name(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::Kepler => "Kepler",
        Architecture::Maxwell => "Maxwell",
        Architecture::Pascal => "Pascal",
        Architecture::Volta => "Volta",
        Architecture::Turing => "Turing",
        Architecture::Ampere => "Ampere",
        Architecture::Ada => "Ada Lovelace",
        Architecture::Hopper => "Hopper",
        Architecture::Blackwell => "Blackwell",
    }
}

fn addressing_name(mode: AddressingMode) -> &'static str {
    match mode {
        AddressingMode::None => "None",
        AddressingMode::Hmm => "HMM",
        AddressingMode::Ats => "ATS",
    }
}

pub(super) fn gpu_name(device: HostDevice<'_>) -> String {
    format!("gpu-{}", device.gpu.minor)
}

fn name_of(device: HostDevice<'_>) -> String {
    let gpu = gpu_name(device);
    match device.mig {
        None => gpu,
        Some(mig) => {
            let profile = mig.profile.as_ref().map(ToString::to_string);
            let profile = label(&profile.unwrap_or_else(|| "unknown".to_owned()));
            DraKind::mig_name(
                &gpu,
                &format!("{profile}-{}-{}", mig.gpu_instance, mig.compute_instance),
            )
        }
    }
}

/// `text` with the characters that a DNS label may have.
pub(super) fn label(text: &str) -> String {
    let valid = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9') => c,
        _ => '-',
    };
    text.chars().map(valid).collect()
}

fn parts(inventory: &Inventory, device: &str, split: &SplitDevice) -> DraParts {
    let names = share_names(device, split);
    let shares = names.into_iter().filter_map(|(name, device)| {
        let share = split.share(&name)?;
        Some(DraShare {
            device,
            name: name.to_string(),
            memory: share.memory,
            compute: share.compute,
        })
    });
    let limited = |has: fn(&Share) -> bool| split.shares.distinct().iter().all(has);
    let most = split.method.rules().most_shares(inventory).map(|most| most.shares);
    let most = most.unwrap_or(split.shares.len());
    DraParts {
        equal: split.replica().is_some(),
        shares: shares.collect(),
        most_memory: split.most_memory.filter(|_| limited(|share| share.memory.is_some())),
        most_compute: limited(|share| share.compute.is_some()).then(|| Percent::of_sum(split.most_compute)),
        most_claims: u32::try_from(most).unwrap_or(u32::MAX),
    }
}

/// The names of the shares of `split`, each with that as a device. Two names of the policy may differ in what a DNS
/// label cannot have.
fn share_names(device: &str, split: &SplitDevice) -> Vec<(ShareName, String)> {
    let mut taken = BTreeSet::new();
    let name = |(number, share): (usize, ShareName)| {
        let plain = format!("{device}-share-{}", label(share.as_str()));
        let name = match taken.insert(plain.clone()) {
            true => plain,
            false => format!("{plain}-{number}"),
        };
        taken.insert(name.clone());
        (share, name)
    };
    split.shares.listed().enumerate().map(name).collect()
}

/// What a resource claim gets for one device of its allocation.
#[derive(Debug, Clone, PartialEq)]
pub struct DraPart<'a> {
    /// The device.
    pub split: &'a SplitDevice,
    /// What of it, as the ledger records it.
    pub part: HeldPart,
    /// Its promise.
    pub promise: Promise,
    /// MPS's hint about whose work goes first.
    pub priority: Priority,
}

/// What `allocated` means on this host.
///
/// # Errors
/// Returns an error if there is no such device, or if what was allocated is nothing that the device gives.
pub fn dra_part<'a>(inventory: &Inventory, plan: &'a Plan, allocated: &AllocatedDevice) -> Result<DraPart<'a>> {
    let (split, share) = find(inventory, plan, &allocated.device)?;
    if split.method.is_whole() {
        return Ok(DraPart::of(split, HeldPart::Whole, Promise::Whole, Priority::default()));
    }
    match share.and_then(|name| Some((split.share(&name)?, name))) {
        None => amount(split, allocated),
        Some((share, name)) => {
            let promise = split.promise(share);
            Ok(DraPart::of(
                split,
                HeldPart::share(name, promise),
                promise,
                share.priority,
            ))
        }
    }
}

/// The device that `name` is, or is a share of, for a claim that only watches it.
///
/// # Errors
/// Returns an error if there is no such device.
pub fn dra_watched(inventory: &Inventory, plan: &Plan, name: &str) -> Result<Device> {
    if is_claimable_name(name) {
        let what = "is made when a claim owns it, so admin access has nothing to show";
        return Err(Error::failed(format!("device {name}"), what)
            .hint("select devices that exist: has(device.attributes[\"gpu.nvidia.com\"].uuid)"));
    }
    find(inventory, plan, name).map(|(split, _)| split.device)
}

/// The device that the driver publishes as `name`, with the share if it is one of a share.
fn find<'a>(inventory: &Inventory, plan: &'a Plan, name: &str) -> Result<(&'a SplitDevice, Option<ShareName>)> {
    for device in plan.kubernetes.claimed(inventory) {
        let Some(split) = plan.split(device.device()) else {
            continue;
        };
        let own = name_of(device);
        if own == name {
            return Ok((split, None));
        }
        if split.method.is_whole() {
            continue;
        }
        if let Some((share, _)) = share_names(&own, split).into_iter().find(|(_, of)| of == name) {
            return Ok((split, Some(share)));
        }
    }
    let error = Error::failed(
        format!("device {name}"),
        "is not on this node any more, or is not given to claims",
    );
    Err(error.hint("the policy or the host has changed; delete the pod, so that it gets another device"))
}

/// A part of any size. Its name is that of the scheduler's share, of which no two claims have the same.
fn amount<'a>(split: &'a SplitDevice, allocated: &AllocatedDevice) -> Result<DraPart<'a>> {
    let object = || format!("device {}", allocated.device);
    let replica = split.replica().ok_or_else(|| {
        Error::failed(object(), "has shares with names, and no amount of it can be had")
            .hint("request one of its shares")
    })?;
    let id = allocated.share_id.as_deref().ok_or_else(|| {
        Error::failed(
            object(),
            "was allocated as a whole, and is shared by the policy of this node",
        )
        .hint("delete the pod, so that it is allocated again")
    })?;
    let name: ShareName = id.parse()?;
    let whole = split.promise(replica);
    let promise = match whole {
        Promise::Whole => Promise::Whole,
        Promise::Turns { holders } => Promise::Turns { holders },
        Promise::Slices { of, .. } => Promise::Slices {
            slices: allocated.shares.unwrap_or(1).max(1),
            of,
        },
        Promise::Mps { memory, compute } => Promise::Mps {
            memory: allocated.memory.map_or(memory, |size| {
                Some(MemorySize::from_mib(size.bytes().div_ceil(1 << 20)))
            }),
            compute: allocated.compute.or(compute),
        },
    };
    let part = HeldPart::Shares(vec![HeldShare { name, promise }]);
    Ok(DraPart::of(split, part, promise, replica.priority))
}

impl<'a> DraPart<'a> {
    pub(super) fn of(split: &'a SplitDevice, part: HeldPart, promise: Promise, priority: Priority) -> Self {
        Self {
            split,
            part,
            promise,
            priority,
        }
    }
}

#[cfg(test)]
mod tests;
