//! Which devices the entries of a policy mean on a host.

use super::device::Target;
use crate::error::{Error, Result};
use crate::inventory::{Gpu, Inventory, MigDevice};
use crate::policy::{DeviceId, DeviceSelector, Policy, Resource, Split};

type Targets<'a> = Vec<(Target<'a>, &'a Split)>;

/// Every device that is to be split with the entry that says so, and a line for each entry that found none.
pub(super) fn targets<'a>(policy: &'a Policy, inventory: &'a Inventory) -> Result<(Targets<'a>, Vec<String>)> {
    let mut found: Targets<'a> = Vec::new();
    let mut notes = Vec::new();
    for split in &policy.splits {
        let meant = match &split.devices {
            DeviceSelector::All => of_resource(&split.resource, inventory),
            DeviceSelector::Count(n) => first(*n, &split.resource, inventory)?,
            DeviceSelector::List(ids) => ids
                .iter()
                .map(|id| named(id, &split.resource, inventory))
                .collect::<Result<_>>()?,
        };
        if meant.is_empty() {
            // One file serves many machines: an entry for a profile that this one lacks is no mistake.
            notes.push(format!("{}: no such device here", entry(split)));
        }
        for target in meant {
            if let Some((_, other)) = found.iter().find(|(t, _)| t.device == target.device) {
                let mut lines = [entry(other), entry(split)];
                lines.sort();
                return Err(Error::usage(
                    target.device,
                    format!("is split twice: by {} and by {}", lines[0], lines[1]),
                )
                .hint("give each entry its own list of devices"));
            }
            found.push((target, split));
        }
    }
    notes.sort();
    Ok((found, notes))
}

fn entry(split: &Split) -> String {
    let resource = match &split.resource {
        Resource::Gpu => "nvidia.com/gpu".to_owned(),
        Resource::Mig(profile) => format!("nvidia.com/mig-{profile}"),
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
    }
}

fn first<'a>(n: u32, resource: &Resource, inventory: &'a Inventory) -> Result<Vec<Target<'a>>> {
    let mut all = of_resource(resource, inventory);
    all.sort_by_key(|t| t.device);
    let n = n as usize;
    if n > all.len() {
        return Err(Error::usage(
            "policy",
            format!("devices asks for {n}, and there are {}", all.len()),
        ));
    }
    all.truncate(n);
    Ok(all)
}

fn named<'a>(id: &DeviceId, resource: &Resource, inventory: &'a Inventory) -> Result<Target<'a>> {
    let target = match id {
        DeviceId::Gpu(index) => gpu(inventory, |g| g.index == *index).map(Target::whole),
        DeviceId::GpuUuid(uuid) => gpu(inventory, |g| g.uuid == *uuid).map(Target::whole),
        DeviceId::Mig(index, mig) => migs(inventory, |g, m| g.index == *index && m.index == *mig),
        DeviceId::MigUuid(uuid) => migs(inventory, |_, m| m.uuid.as_ref() == Some(uuid)),
    };
    let Some(target) = target else {
        let error = Error::usage(format!("device {id}"), "is in the policy and not on this host");
        return Err(match id {
            // A MIG device gets a new UUID whenever it is made anew.
            DeviceId::MigUuid(_) => error.hint("its UUID changes with every MIG layout; name it by index, like 0:1"),
            _ => error.hint(there_is(inventory)),
        });
    };
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
    Ok(target)
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
    let gpus = inventory.gpus.iter().map(|g| g.index.to_string());
    let migs = inventory.mig_devices().map(|(g, m)| format!("{}:{}", g.index, m.index));
    let all: Vec<String> = gpus.chain(migs).collect();
    if all.is_empty() {
        "there is none".to_owned()
    } else {
        format!("there are {}", all.join(", "))
    }
}
