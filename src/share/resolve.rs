//! Which devices the entries of a policy mean on a host.

use super::absent::AbsentDevice;
use crate::error::{Error, Result};
use crate::inventory::{Catalogue, HostDevice, Inventory};
use crate::policy::{DeviceSet, Place, Policy, Resource, Split, Strategy};
use crate::text::some;
use std::collections::BTreeMap;

/// What the entries of a policy mean on a host.
#[derive(Default)]
pub(super) struct Resolved<'a> {
    /// Every device that is to be split, with the entry that says so.
    pub(super) targets: Vec<(HostDevice<'a>, &'a Split)>,
    /// One line for each entry for which the host has no device.
    pub(super) notes: Vec<String>,
    /// One line for each pair of entries of which only one has an effect on a device.
    pub(super) warnings: Vec<String>,
    /// Devices that an entry names and that this host does not have.
    pub(super) absent: Vec<AbsentDevice>,
}

/// Finds the devices of every entry.
///
/// # Errors
/// Returns a usage error if a device is in two entries of one strategy, or if an entry names a device that it cannot
/// share (a GPU in MIG mode, a MIG device of another profile).
pub(super) fn targets<'a>(policy: &'a Policy, inventory: &'a Inventory) -> Result<Resolved<'a>> {
    let mut resolved = Resolved::default();
    let catalogue = inventory.catalogue();
    let mut overruled: BTreeMap<(Place, Place), Vec<String>> = BTreeMap::new();
    for split in &policy.splits {
        let absent_before = resolved.absent.len();
        let meant = meant(policy, split, &catalogue, &mut resolved.absent)?;
        if meant.is_empty() && resolved.absent.len() == absent_before {
            // One file may serve many machines, so an entry for a profile that this one lacks is not a mistake.
            let place = split.place.of(&policy.file);
            resolved
                .notes
                .push(format!("{place}: {}: this host has no such device", entry(split)));
        }
        for target in meant {
            let Some(at) = resolved.targets.iter().position(|(t, _)| *t == target) else {
                resolved.targets.push((target, split));
                continue;
            };
            let other = resolved.targets[at].1;
            let (mps, turns) = match (other.strategy, split.strategy) {
                (Strategy::Mps, Strategy::TimeSlicing) => (other, split),
                (Strategy::TimeSlicing, Strategy::Mps) => (split, other),
                (Strategy::Mps | Strategy::TimeSlicing | Strategy::Dedicated, _) => {
                    return Err(twice(policy, target, other, split));
                }
            };
            // NVIDIA's device plugin also uses MPS for a resource that is in both sections.
            overruled
                .entry((turns.place, mps.place))
                .or_default()
                .push(target.name());
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

fn twice(policy: &Policy, target: HostDevice<'_>, one: &Split, other: &Split) -> Error {
    let (first, second) = (one.place.min(other.place), one.place.max(other.place));
    let what = format!("two entries share it: this one and that at line {}", first.line);
    policy
        .wrong(second, target, what)
        .hint("give each entry its own list of devices")
}

/// The devices that an entry means. Those that it names and that are absent go to `absent`.
fn meant<'a>(
    policy: &Policy,
    split: &Split,
    catalogue: &Catalogue<'a>,
    absent: &mut Vec<AbsentDevice>,
) -> Result<Vec<HostDevice<'a>>> {
    let mut miss = |place: Place, asked: String, hint: String| {
        let place = place.of(&policy.file);
        absent.push(AbsentDevice { place, asked, hint });
    };
    let of_resource = catalogue.usable().filter(|device| is_of(*device, &split.resource));
    match &split.devices {
        DeviceSet::All => Ok(of_resource.collect()),
        DeviceSet::Count(n) => {
            let mut found: Vec<HostDevice<'a>> = of_resource.collect();
            if found.len() < *n as usize {
                let hint = format!("this host has {}", found.len());
                miss(split.place, format!("{n} devices"), hint);
            }
            found.truncate(*n as usize);
            Ok(found)
        }
        DeviceSet::List(selectors) => {
            let mut found: Vec<HostDevice<'a>> = Vec::new();
            for selector in selectors {
                match catalogue.find(&selector.value) {
                    // A device that is in the list by index and by UUID is one device.
                    Some(device) if found.contains(&device) => {}
                    Some(device) => found.push(checked(policy, device, selector.place, &split.resource)?),
                    None => {
                        let hint = catalogue.instead_of(&selector.value);
                        miss(selector.place, format!("device {}", selector.value), hint);
                    }
                }
            }
            Ok(found)
        }
    }
}

/// The resource of an entry, for messages.
fn entry(split: &Split) -> String {
    let strategy = split.strategy;
    match &split.resource {
        Resource::Gpu => format!("{strategy} of nvidia.com/gpu"),
        Resource::Mig(profile) => format!("{strategy} of nvidia.com/mig-{profile}"),
        Resource::Every => format!("{strategy} of all devices"),
    }
}

fn is_of(device: HostDevice<'_>, resource: &Resource) -> bool {
    match resource {
        Resource::Gpu => device.mig.is_none(),
        Resource::Mig(profile) => device.mig.is_some_and(|mig| mig.profile.as_ref() == Some(profile)),
        Resource::Every => true,
    }
}

/// `device`, if an entry for `resource` may name it.
fn checked<'a>(policy: &Policy, device: HostDevice<'a>, place: Place, resource: &Resource) -> Result<HostDevice<'a>> {
    if device.mig.is_none() && device.gpu.is_in_mig_mode() {
        let what = "is in MIG mode, where work runs on its instances only";
        let hint = format!("name those instead: \"{}:0\" and so on", device.name());
        return Err(policy.wrong(place, device, what).hint(hint));
    }
    match resource {
        Resource::Mig(profile) if !is_of(device, resource) => {
            let own = device.mig.and_then(|mig| mig.profile.as_ref());
            let own = own.map(|own| format!("a {own}"));
            let own = own.unwrap_or_else(|| "not a MIG device of a known profile".to_owned());
            let error = policy.wrong(place, device, format!("is {own}, and the entry is for mig-{profile}"));
            Err(error.hint("remove it from the list, or write nvidia.com/gpu as the name"))
        }
        _ => Ok(device),
    }
}
