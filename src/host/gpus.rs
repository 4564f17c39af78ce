//! GPUs: what NVML told, what `/proc` tells, put together and checked.

use super::mig;
use super::node::{Expected, look};
use super::nvml::{Facts, GpuFacts, Report};
use super::order;
use super::pci;
use super::proc::{self, Information, Majors, MigMinors};
use super::roots::Roots;
use super::tree::is_absence;
use crate::inventory::{Gpu, Inventory, Source};
use crate::types::{ComputeCapability, GpuIndex, GpuUuid, MemorySize, Minor, PciAddress};
use std::collections::BTreeSet;

/// What `/proc/driver/nvidia/gpus` says, in the order of PCI addresses.
pub(crate) fn in_proc(roots: &Roots, inventory: &mut Inventory) -> Vec<Information> {
    const DIR: &str = "/driver/nvidia/gpus";
    let entries = match roots.proc.list(DIR) {
        Ok(entries) => entries,
        Err(e) if is_absence(&e) => {
            inventory.absent("GPUs of the kernel module", [roots.proc.host(DIR).as_str().to_owned()]);
            return Vec::new();
        }
        Err(e) => {
            inventory.warn(roots.proc.host(DIR), format!("cannot be listed: {e}"));
            return Vec::new();
        }
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = format!("{DIR}/{}/information", entry.name);
        match roots.proc.text(&path) {
            Ok(text) => {
                let mut information = proc::information(&text);
                information.pci = information.pci.or_else(|| entry.name.parse().ok());
                found.push(information);
            }
            // A GPU that goes away takes its file with it. That it was there matters for the order of the others.
            Err(e) => {
                inventory.warn(roots.proc.host(&path), format!("cannot be read: {e}"));
                found.push(Information {
                    pci: entry.name.parse().ok(),
                    ..Information::default()
                });
            }
        }
    }
    found.sort_by_key(|i| i.pci);
    found
}

/// All GPUs, by index; sets the inventory's source.
pub(crate) fn collect(
    roots: &Roots,
    report: Option<&Report>,
    in_proc: &[Information],
    majors: &Majors,
    minors: &MigMinors,
    inventory: &mut Inventory,
) -> Vec<Gpu> {
    let mut gpus = Vec::new();
    let told = report.filter(|r| r.facts.driver.is_some());
    inventory.source = match told {
        Some(report) if report.complete || !report.facts.gpus.is_empty() => Source::Nvml,
        _ => Source::Proc,
    };
    if let Some(report) = told {
        for facts in &report.facts.gpus {
            gpus.extend(from_nvml(facts, in_proc, inventory));
        }
    }
    let untold = untold(told, in_proc, inventory);
    gpus.extend(untold);
    gpus.sort_by_key(|g| g.index);
    drop_doubles(&mut gpus, inventory);
    for gpu in &mut gpus {
        let expected = Expected {
            majors: majors.gpu(),
            minor: Some(gpu.minor.0),
        };
        gpu.node = look(roots, &format!("/dev/nvidia{}", gpu.minor), expected, inventory);
        if gpu.node.is_none() {
            inventory.degrade_device(gpu.label(), format!("has no device node /dev/nvidia{}", gpu.minor));
        }
        gpu.numa_node = pci::numa_node(roots, gpu.pci);
        gpu.dri = pci::dri(roots, gpu.pci, inventory);
        let facts = told.and_then(|r| r.facts.gpus.iter().find(|f| f.index == gpu.index.0));
        match facts {
            Some(facts) => gpu.mig_devices = mig::from_nvml(gpu, facts, inventory),
            None => {
                gpu.unnamed_instances = mig::in_proc(roots, gpu.minor, inventory);
                say_unnamed(gpu, inventory);
            }
        }
        mig::add_nodes(roots, majors, minors, gpu, inventory);
    }
    if let Some(report) = told {
        say_lost(report, in_proc, inventory);
    }
    gpus
}

/// One line for the MIG devices of a GPU that have no name, and so are left out.
fn say_unnamed(gpu: &Gpu, inventory: &mut Inventory) {
    if gpu.unnamed_instances.is_empty() {
        return;
    }
    let names: Vec<String> = gpu.unnamed_instances.iter().map(ToString::to_string).collect();
    let text = format!(
        "is divided by MIG, and NVML alone can name its MIG devices: instances {} are left out, and so is the GPU as a whole",
        crate::text::some(&names)
    );
    inventory.warn(gpu.label(), text);
}

/// Notes the GPUs that do not answer: those that NVML says so of, and those that the kernel module lists and NVML does
/// not count. A GPU that is excluded on purpose is not missing.
fn say_lost(report: &Report, in_proc: &[Information], inventory: &mut Inventory) {
    for index in &report.facts.lost {
        inventory.degrade_device(format!("gpu {index}"), "does not answer");
    }
    // Where some are lost by index, which of the others they are is not known; and the number is what matters.
    if !report.complete || !report.facts.lost.is_empty() {
        return;
    }
    let is_told = |information: &&Information| {
        report.facts.gpus.iter().any(|facts| {
            let pci: Option<PciAddress> = facts.pci.as_deref().and_then(|p| p.parse().ok());
            let minor = facts.minor.map(Minor);
            (pci.is_some() && pci == information.pci) || (minor.is_some() && minor == information.minor)
        })
    };
    for information in in_proc.iter().filter(|i| !i.excluded && !is_told(i)) {
        let name = information
            .pci
            .map_or_else(|| "of unknown address".to_owned(), |p| p.to_string());
        let text = "is known to the kernel module, and NVML does not count it: left out";
        inventory.warn(format!("gpu {name}"), text);
        inventory.degrade_device(format!("gpu {name}"), "does not answer");
    }
}

/// GPUs that NVML was not asked about, from `/proc`. All of them where it told nothing; those after the one at which it
/// got stuck, where the places in both orders agree. Not the one at which it got stuck.
fn untold(told: Option<&Report>, in_proc: &[Information], inventory: &mut Inventory) -> Vec<Gpu> {
    for information in in_proc.iter().filter(|i| i.excluded) {
        if told.is_none_or(|report| !report.complete) {
            let name = information
                .pci
                .map_or_else(|| "of unknown address".to_owned(), |p| p.to_string());
            let text = "is excluded by a parameter of the kernel module and is left out";
            inventory.warn(format!("gpu {name}"), text);
        }
    }
    let present: Vec<&Information> = in_proc.iter().filter(|i| !i.excluded).collect();
    let first = match told {
        None => 0,
        Some(report) if report.complete => return Vec::new(),
        Some(report) => {
            let Some(stuck) = report.stuck_at else {
                return Vec::new();
            };
            inventory.warn(format!("gpu {stuck}"), "does not answer and is left out");
            if !agrees(report, &present) {
                inventory.warn(
                    format!("gpu {} and later", stuck.saturating_add(1)),
                    "NVML was not asked, and which they are is not certain: left out",
                );
                return Vec::new();
            }
            stuck.saturating_add(1)
        }
    };
    let unknown = order::why_unknown(in_proc);
    if let Some(why) = unknown.as_ref().filter(|_| present.len() > first as usize) {
        let text = format!("have no index without NVML, because {why}: they are named by their UUIDs alone");
        inventory.warn("GPUs", text);
    }
    let mut gpus = Vec::new();
    for (index, information) in (0..).zip(present).filter(|(index, _)| *index >= first) {
        if told.is_some() {
            let name = information.pci.map_or_else(|| index.to_string(), |p| p.to_string());
            inventory.warn(
                format!("gpu {name}"),
                "NVML was not asked; memory, modes and MIG UUIDs are unknown",
            );
        }
        let facts = GpuFacts {
            index,
            ..GpuFacts::default()
        };
        if let Some(mut gpu) = build(&facts, Some(information), inventory) {
            gpu.index_is_known = unknown.is_none();
            gpus.push(gpu);
        }
    }
    gpus
}

/// Whether the GPUs that NVML told before it got stuck are at the same places in `/proc`, and both count as many.
fn agrees(report: &Report, present: &[&Information]) -> bool {
    let count = report.facts.driver.as_ref().map_or(0, |d| d.count);
    let same_place = |facts: &GpuFacts| {
        let pci: Option<PciAddress> = facts.pci.as_deref().and_then(|p| p.parse().ok());
        let there = usize::try_from(facts.index).ok().and_then(|at| present.get(at));
        pci.is_some() && there.is_some_and(|i| i.pci == pci)
    };
    usize::try_from(count) == Ok(present.len()) && report.facts.gpus.iter().all(same_place)
}

fn from_nvml(facts: &GpuFacts, in_proc: &[Information], inventory: &mut Inventory) -> Option<Gpu> {
    let pci: Option<PciAddress> = facts.pci.as_deref().and_then(|p| p.parse().ok());
    let uuid: Option<GpuUuid> = facts.uuid.as_deref().and_then(|u| u.parse().ok());
    let information = in_proc
        .iter()
        .find(|i| (pci.is_some() && i.pci == pci) || (uuid.is_some() && i.uuid == uuid));
    build(facts, information, inventory)
}

/// One GPU from both sources. Without a UUID, an address or a minor nobody could be given this GPU and no other.
fn build(facts: &GpuFacts, information: Option<&Information>, inventory: &mut Inventory) -> Option<Gpu> {
    let empty = Information::default();
    let information = information.unwrap_or(&empty);
    // Where NVML told nothing, the place in a list is no name.
    let object = match information.pci.filter(|_| facts.pci.is_none()) {
        Some(pci) => format!("gpu {pci}"),
        None => format!("gpu {}", facts.index),
    };
    let uuid = checked(&object, "UUID", facts.uuid.as_deref(), inventory).or_else(|| information.uuid.clone());
    let pci = checked(&object, "PCI address", facts.pci.as_deref(), inventory).or(information.pci);
    let minor = facts.minor.map(Minor).or(information.minor);
    let missing = match (&uuid, pci, minor) {
        (Some(_), Some(_), Some(_)) => None,
        (None, _, _) => {
            Some("UUID (the driver knows it once the GPU was opened: run nvidia-smi, or nvidia-persistenced)")
        }
        (_, None, _) => Some("PCI address"),
        (_, _, None) => Some("minor number"),
    };
    if let Some(missing) = missing {
        inventory.warn(&object, format!("is left out: nothing tells its {missing}"));
        inventory.degrade_device(&object, "has no UUID, PCI address or minor number that anything tells");
    }
    let name = facts.name.as_deref().and_then(proc::printable);
    Some(Gpu {
        index: GpuIndex(facts.index),
        index_is_known: true,
        minor: minor?,
        uuid: uuid?,
        pci: pci?,
        name: name
            .or_else(|| information.model.clone())
            .unwrap_or_else(|| "unknown GPU".to_owned()),
        architecture: facts.architecture,
        compute_capability: facts.compute_capability.and_then(|(major, minor)| {
            Some(ComputeCapability {
                major: u32::try_from(major).ok().filter(|m| *m > 0)?,
                minor: u32::try_from(minor).ok()?,
            })
        }),
        memory: facts.memory.filter(|m| *m > 0).map(MemorySize::from_bytes),
        mig: facts.mig,
        compute_mode: facts.compute_mode,
        persistence: facts.persistence,
        addressing: facts.addressing,
        numa_node: None,
        virtualization: facts.virtualization,
        node: None,
        dri: Vec::new(),
        mig_devices: Vec::new(),
        unnamed_instances: Vec::new(),
    })
}

/// A text of NVML's as what it should be; a warning where it is something else.
pub(super) fn checked<T: std::str::FromStr>(
    object: &str,
    what: &str,
    text: Option<&str>,
    inventory: &mut Inventory,
) -> Option<T> {
    let text = text?;
    let value = text.parse().ok();
    if value.is_none() {
        inventory.warn(object, format!("NVML gives {text:?} as its {what}, which is none"));
    }
    value
}

/// Two entries for one GPU would put one node into two devices.
fn drop_doubles(gpus: &mut Vec<Gpu>, inventory: &mut Inventory) {
    let (mut indices, mut uuids, mut minors, mut addresses) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    gpus.retain(|gpu| {
        // All four sets must learn it: no short cut.
        let is_new = [
            indices.insert(gpu.index),
            uuids.insert(gpu.uuid.clone()),
            minors.insert(gpu.minor),
            addresses.insert(gpu.pci),
        ];
        let keep = is_new == [true; 4];
        if !keep {
            inventory.warn(
                format!("gpu {}", gpu.index),
                "has a UUID, minor or PCI address of another GPU and is left out",
            );
            inventory.degrade_device(gpu.label(), "has a UUID, minor or PCI address of another GPU");
        }
        keep
    });
}

/// Warnings about versions, and what NVML adds to the driver.
pub(crate) fn driver_facts(facts: &Facts, inventory: &mut Inventory) {
    let Some(told) = &facts.driver else { return };
    let version: Option<crate::types::DriverVersion> =
        checked("NVML", "driver version", told.version.as_deref(), inventory);
    let cuda = told.cuda.and_then(|c| u32::try_from(c).ok()).filter(|c| *c >= 1000);
    let Some(driver) = &mut inventory.driver else { return };
    driver.cuda = cuda.map(|c| crate::types::CudaVersion {
        major: c / 1000,
        minor: c % 1000 / 10,
    });
    let module = driver.version.clone();
    if let Some(version) = version.filter(|v| *v != module) {
        inventory.warn(
            "NVML",
            format!("says that the driver is {version}, the kernel module says {module}; reboot, or unload and load the module"),
        );
    }
}
