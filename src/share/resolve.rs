//! Which devices the entries of a policy mean on a host.

use super::absent::AbsentDevice;
use super::device::Target;
use crate::error::{Error, Result};
use crate::inventory::{Gpu, Inventory, MigDevice};
use crate::policy::{DeviceId, DeviceSelector, Policy, Resource, Split};

/// What the entries of a policy mean on a host.
#[derive(Default)]
pub(super) struct Resolved<'a> {
    /// Every device that is to be split, with the entry that says so.
    pub(super) targets: Vec<(Target<'a>, &'a Split)>,
    /// A line for each entry that found no device.
    pub(super) notes: Vec<String>,
    /// Devices that an entry names and that this host does not have.
    pub(super) absent: Vec<AbsentDevice>,
}

/// Finds the devices of every entry.
///
/// # Errors
/// A device in two entries; a device that is there and that the entry cannot mean (a GPU in MIG mode, another profile).
pub(super) fn targets<'a>(policy: &'a Policy, inventory: &'a Inventory) -> Result<Resolved<'a>> {
    let mut resolved = Resolved::default();
    for split in &policy.splits {
        let absent_before = resolved.absent.len();
        let meant = match &split.devices {
            DeviceSelector::All => of_resource(&split.resource, inventory),
            DeviceSelector::Count(n) => {
                let mut all = of_resource(&split.resource, inventory);
                all.sort_by_key(|t| t.device);
                let there = all.len();
                if there < *n as usize {
                    resolved.absent.push(AbsentDevice {
                        asked: format!("{n} devices"),
                        entry: entry(split),
                        hint: format!("there are {there}"),
                    });
                }
                all.truncate(*n as usize);
                all
            }
            DeviceSelector::List(ids) => {
                let mut there = Vec::new();
                for id in ids {
                    match named(id, &split.resource, inventory)? {
                        Some(target) => there.push(target),
                        None => resolved.absent.push(AbsentDevice {
                            asked: format!("device {id}"),
                            entry: entry(split),
                            hint: instead(id, inventory),
                        }),
                    }
                }
                there
            }
        };
        if meant.is_empty() && resolved.absent.len() == absent_before {
            // One file serves many machines: an entry for a profile that this one lacks is no mistake.
            resolved.notes.push(format!("{}: no such device here", entry(split)));
        }
        for target in meant {
            if let Some((_, other)) = resolved.targets.iter().find(|(t, _)| t.device == target.device) {
                let mut lines = [entry(other), entry(split)];
                lines.sort();
                return Err(Error::usage(
                    target.device,
                    format!("is split twice: by {} and by {}", lines[0], lines[1]),
                )
                .hint("give each entry its own list of devices"));
            }
            resolved.targets.push((target, split));
        }
    }
    resolved.notes.sort();
    Ok(resolved)
}

fn entry(split: &Split) -> String {
    let resource = match &split.resource {
        Resource::Gpu => "nvidia.com/gpu".to_owned(),
        Resource::Mig(profile) => format!("nvidia.com/mig-{profile}"),
        Resource::Every => "devices".to_owned(),
    };
    match split.line {
        0 => format!("{} of {resource}", split.strategy),
        line => format!("{} of {resource} (line {line})", split.strategy),
    }
}

fn of_resource<'a>(resource: &Resource, inventory: &'a Inventory) -> Vec<Target<'a>> {
    match resource {
        Resource::Gpu => inventory
            .gpus
            .iter()
            .filter(|g| !g.is_in_mig_mode())
            .map(Target::whole)
            .collect(),
        Resource::Mig(profile) => inventory
            .mig_devices()
            .filter(|(_, mig)| mig.profile.as_ref() == Some(profile))
            .map(|(gpu, mig)| Target::mig(gpu, mig))
            .collect(),
        Resource::Every => {
            let migs = inventory.mig_devices().map(|(gpu, mig)| Target::mig(gpu, mig));
            of_resource(&Resource::Gpu, inventory).into_iter().chain(migs).collect()
        }
    }
}

/// The device that `id` names; `None` where this host does not have it.
fn named<'a>(id: &DeviceId, resource: &Resource, inventory: &'a Inventory) -> Result<Option<Target<'a>>> {
    let target = match id {
        DeviceId::Gpu(index) => gpu(inventory, |g| g.index_is_known && g.index == *index).map(Target::whole),
        DeviceId::GpuUuid(uuid) => gpu(inventory, |g| g.uuid == *uuid).map(Target::whole),
        DeviceId::Mig(index, mig) => migs(inventory, |g, m| {
            g.index_is_known && g.index == *index && m.index == *mig
        }),
        DeviceId::MigUuid(uuid) => migs(inventory, |_, m| m.uuid.as_ref() == Some(uuid)),
    };
    let Some(target) = target else { return Ok(None) };
    if target.device.mig.is_none() && target.gpu.is_in_mig_mode() {
        return Err(
            Error::usage(target.device, "is in MIG mode, where work runs on its instances alone")
                .hint(format!("split those: {}:0 and so on", target.device.gpu)),
        );
    }
    if let Resource::Mig(profile) = resource {
        let has = target
            .device
            .mig
            .and_then(|i| target.gpu.mig_devices.iter().find(|m| m.index == i)?.profile.clone());
        if has.as_ref() != Some(profile) {
            let has = has.map_or_else(|| "no MIG device of a known profile".to_owned(), |p| format!("a {p}"));
            return Err(Error::usage(
                target.device,
                format!("is {has}, and the entry is for mig-{profile}"),
            ));
        }
    }
    Ok(Some(target))
}

/// What a person may write instead of `id`, which is not there.
fn instead(id: &DeviceId, inventory: &Inventory) -> String {
    match id {
        // A MIG device gets a new UUID whenever it is made anew.
        DeviceId::MigUuid(_) => "its UUID changes with every MIG layout; name it by index, like 0:1".to_owned(),
        _ => there_is(inventory),
    }
}

fn gpu(inventory: &Inventory, is: impl Fn(&Gpu) -> bool) -> Option<&Gpu> {
    inventory.gpus.iter().find(|g| is(g))
}

fn migs(inventory: &Inventory, is: impl Fn(&Gpu, &MigDevice) -> bool) -> Option<Target<'_>> {
    inventory
        .mig_devices()
        .find(|(g, m)| is(g, m))
        .map(|(g, m)| Target::mig(g, m))
}

fn there_is(inventory: &Inventory) -> String {
    let gpus = inventory.gpus.iter().map(|g| match g.index_is_known {
        true => g.index.to_string(),
        false => g.uuid.to_string(),
    });
    let migs = inventory.mig_devices().map(|(g, m)| format!("{}:{}", g.index, m.index));
    let all: Vec<String> = gpus.chain(migs).collect();
    if all.is_empty() {
        "there is none".to_owned()
    } else {
        format!("there are {}", all.join(", "))
    }
}
