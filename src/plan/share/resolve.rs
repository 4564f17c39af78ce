//! Which devices the entries of a policy mean on a host.

use super::absent::AbsentDevice;
use crate::inventory::{Catalogue, HostDevice, Inventory};
use crate::policy::{DeviceSet, Place, Policy, Resource, Split, Strategy};
use std::collections::BTreeMap;
use tranche_core::error::{Error, Result};
use tranche_core::text::some;

/// What the entries of a policy mean on a host.
#[derive(Default)]
pub(super) struct Resolved<'a> {
    /// Every device that is to be split, with the entry that says so.
    pub(super) targets: Vec<(HostDevice<'a>, &'a Split)>,
    /// One line for each entry for which the host has no device.
    pub(super) notes: Vec<String>,
    /// One line for each pair of entries of which only one has an effect on a device.
    pub(super) warnings: Vec<String>,
    /// Devices that an entry names and that are left out.
    pub(super) absent: Vec<AbsentDevice>,
}

/// Finds the devices of every entry.
///
/// # Errors
/// Returns a usage error if a device is in two entries of one strategy.
pub(super) fn targets<'a>(policy: &'a Policy, inventory: &'a Inventory) -> Result<Resolved<'a>> {
    let mut resolved = Resolved::default();
    let catalogue = inventory.catalogue();
    let mut overruled: BTreeMap<(Place, Place), Vec<String>> = BTreeMap::new();
    for split in &policy.splits {
        let absent_before = resolved.absent.len();
        let meant = meant(policy, split, &catalogue, &mut resolved.absent);
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
                (Strategy::Mps | Strategy::TimeSlicing | Strategy::Turns | Strategy::Dedicated, _) => {
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

/// The devices that an entry means. Those that it names and that are left out go to `absent`.
fn meant<'a>(
    policy: &Policy,
    split: &Split,
    catalogue: &Catalogue<'a>,
    absent: &mut Vec<AbsentDevice>,
) -> Vec<HostDevice<'a>> {
    let mut leave_out = |place: Place, asked: String, why: &str, hint: String| {
        absent.push(AbsentDevice {
            place: place.of(&policy.file),
            asked,
            why: why.to_owned(),
            hint,
        });
    };
    let of_resource = catalogue.usable().filter(|device| is_of(*device, &split.resource));
    match &split.devices {
        DeviceSet::All => of_resource.collect(),
        DeviceSet::Count(n) => {
            let mut found: Vec<HostDevice<'a>> = of_resource.collect();
            if found.len() < *n as usize {
                let hint = format!("this host has {}", found.len());
                leave_out(split.place, format!("{n} devices"), AbsentDevice::NOT_FOUND, hint);
            }
            found.truncate(*n as usize);
            found
        }
        DeviceSet::List(selectors) => {
            let mut found: Vec<HostDevice<'a>> = Vec::new();
            for selector in selectors {
                match catalogue.find(&selector.value) {
                    // A device that is in the list by index and by UUID is one device.
                    Some(device) if found.contains(&device) => {}
                    Some(device) => match why_not(device, &split.resource) {
                        None => found.push(device),
                        Some((why, hint)) => leave_out(selector.place, device.to_string(), &why, hint),
                    },
                    None => {
                        let (asked, hint) = (&selector.value, catalogue.instead_of(&selector.value));
                        leave_out(selector.place, format!("device {asked}"), AbsentDevice::NOT_FOUND, hint);
                    }
                }
            }
            found
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

/// Why an entry for `resource` cannot share `device` although it names it, and what to do; `None` if it can. MIG modes
/// and profiles change while the policy stays the same.
fn why_not(device: HostDevice<'_>, resource: &Resource) -> Option<(String, String)> {
    if device.mig.is_none() && device.gpu.is_in_mig_mode() {
        let why = "is in MIG mode, where work runs on its instances only, and is left out".to_owned();
        let hint = format!("name those instead: \"{}:0\" and so on", device.name());
        return Some((why, hint));
    }
    match resource {
        Resource::Mig(profile) if !is_of(device, resource) => {
            let own = device.mig.and_then(|mig| mig.profile.as_ref());
            let own = own.map(|own| format!("a {own}"));
            let own = own.unwrap_or_else(|| "not a MIG device of a known profile".to_owned());
            let why = format!("is {own}, and the entry, which is for mig-{profile}, leaves it out");
            let hint = "remove it from the list, or write nvidia.com/gpu as the name".to_owned();
            Some((why, hint))
        }
        _ => None,
    }
}
