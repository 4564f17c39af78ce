//! Which devices the entries of a policy mean on a host.

use super::absent::AbsentDevice;
use super::device::Target;
use crate::error::{Error, Result};
use crate::inventory::Inventory;
use crate::policy::{DeviceSelector, Place, Placed, Policy, Resource, Split, Strategy};
use crate::text::some;
use crate::types::DeviceId;
use std::collections::BTreeMap;

/// What the entries of a policy mean on a host.
#[derive(Default)]
pub(super) struct Resolved<'a> {
    /// Every device that is to be split, with the entry that says so.
    pub(super) targets: Vec<(Target<'a>, &'a Split)>,
    /// A line for each entry that found no device.
    pub(super) notes: Vec<String>,
    /// A line for each choice that was made between two entries.
    pub(super) warnings: Vec<String>,
    /// Devices that an entry names and that this host does not have.
    pub(super) absent: Vec<AbsentDevice>,
}

/// Finds the devices of every entry.
///
/// # Errors
/// A device in two entries; a device that is there and that the entry cannot mean (a GPU in MIG mode, another profile).
pub(super) fn targets<'a>(policy: &'a Policy, inventory: &'a Inventory) -> Result<Resolved<'a>> {
    let mut resolved = Resolved::default();
    let mut overruled: BTreeMap<(Place, Place), Vec<String>> = BTreeMap::new();
    for split in &policy.splits {
        let absent_before = resolved.absent.len();
        let meant = meant(policy, split, inventory, &mut resolved.absent)?;
        if meant.is_empty() && resolved.absent.len() == absent_before {
            // One file serves many machines: an entry for a profile that this one lacks is no mistake.
            let place = split.place.of(&policy.file);
            resolved
                .notes
                .push(format!("{place}: {}: no such device here", entry(split)));
        }
        for target in meant {
            let Some(at) = resolved.targets.iter().position(|(t, _)| t.device == target.device) else {
                resolved.targets.push((target, split));
                continue;
            };
            let other = resolved.targets[at].1;
            let (mps, turns) = match (other.strategy, split.strategy) {
                (Strategy::Mps, Strategy::TimeSlicing) => (other, split),
                (Strategy::TimeSlicing, Strategy::Mps) => (split, other),
                _ => return Err(twice(policy, &target, other, split)),
            };
            // As NVIDIA's device plugin decides it, which takes MPS for a resource that is in both sections.
            overruled
                .entry((turns.place, mps.place))
                .or_default()
                .push(target.device.cdi_name());
            resolved.targets[at].1 = mps;
        }
    }
    for ((turns, mps), devices) in overruled {
        resolved.warnings.push(format!(
            "{}: timeSlicing has no effect on gpu {}, which mps shares at line {}: mps wins",
            turns.of(&policy.file),
            some(&devices),
            mps.line
        ));
    }
    resolved.notes.sort();
    Ok(resolved)
}

fn twice(policy: &Policy, target: &Target<'_>, one: &Split, other: &Split) -> Error {
    let (first, second) = if one.place < other.place {
        (one, other)
    } else {
        (other, one)
    };
    let what = format!("two entries share it: this one and that at line {}", first.place.line);
    policy
        .wrong(second.place, target.device, what)
        .hint("give each entry its own list of devices")
}

/// The devices that an entry means. Those that it names and that are absent go to `absent`.
fn meant<'a>(
    policy: &Policy,
    split: &'a Split,
    inventory: &'a Inventory,
    absent: &mut Vec<AbsentDevice>,
) -> Result<Vec<Target<'a>>> {
    match &split.devices {
        DeviceSelector::All => Ok(of_resource(&split.resource, inventory)),
        DeviceSelector::Count(n) => {
            let mut all = of_resource(&split.resource, inventory);
            all.sort_by_key(|t| t.device);
            let there = all.len();
            if there < *n as usize {
                absent.push(AbsentDevice {
                    place: split.place.of(&policy.file),
                    asked: format!("{n} devices"),
                    hint: format!("there are {there}"),
                });
            }
            all.truncate(*n as usize);
            Ok(all)
        }
        DeviceSelector::List(ids) => {
            let mut found: Vec<Target<'a>> = Vec::new();
            for id in ids {
                match named(policy, id, &split.resource, inventory)? {
                    // A device that is in the list by index and by UUID is one device.
                    Some(target) if found.iter().any(|other| other.device == target.device) => {}
                    Some(target) => found.push(target),
                    None => absent.push(AbsentDevice {
                        place: id.place.of(&policy.file),
                        asked: format!("device {}", id.value),
                        hint: instead(&id.value, inventory),
                    }),
                }
            }
            Ok(found)
        }
    }
}

/// What an entry is about, for messages.
fn entry(split: &Split) -> String {
    match &split.resource {
        Resource::Gpu => format!("{} of nvidia.com/gpu", split.strategy),
        Resource::Mig(profile) => format!("{} of nvidia.com/mig-{profile}", split.strategy),
        Resource::Every => format!("{} of all devices", split.strategy),
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
fn named<'a>(
    policy: &Policy,
    id: &Placed<DeviceId>,
    resource: &Resource,
    inventory: &'a Inventory,
) -> Result<Option<Target<'a>>> {
    let target = inventory.device(&id.value).map(|(gpu, mig)| match mig {
        None => Target::whole(gpu),
        Some(mig) => Target::mig(gpu, mig),
    });
    let Some(target) = target else { return Ok(None) };
    if target.device.mig.is_none() && target.gpu.is_in_mig_mode() {
        return Err(policy
            .wrong(
                id.place,
                target.device,
                "is in MIG mode, where work runs on its instances alone",
            )
            .hint(format!("name those instead: \"{}:0\" and so on", target.device.gpu)));
    }
    if let Resource::Mig(profile) = resource {
        let has = target
            .device
            .mig
            .and_then(|i| target.gpu.mig_devices.iter().find(|m| m.index == i)?.profile.clone());
        if has.as_ref() != Some(profile) {
            let has = has.map_or_else(|| "no MIG device of a known profile".to_owned(), |p| format!("a {p}"));
            return Err(policy
                .wrong(
                    id.place,
                    target.device,
                    format!("is {has}, and the entry is for mig-{profile}"),
                )
                .hint("remove it from the list, or write nvidia.com/gpu as the name"));
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

fn there_is(inventory: &Inventory) -> String {
    let gpus = inventory.gpus.iter().map(|g| match g.index_is_known {
        true => g.index.to_string(),
        false => g.uuid.to_string(),
    });
    let migs = inventory.mig_devices().map(|(g, m)| format!("{}:{}", g.index, m.index));
    let all: Vec<String> = gpus.chain(migs).collect();
    if all.is_empty() {
        "there are none".to_owned()
    } else {
        format!("there are {}", some(&all))
    }
}
