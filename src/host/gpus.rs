//! GPUs: what NVML and `/proc` report, merged and checked.

use super::mig;
use super::node::look;
use super::nvml::NvmlReport;
use super::order;
use super::pci;
use super::proc::{self, Information};
use super::scan::Scan;
use std::collections::BTreeSet;
use tranche_core::types::{ComputeCapability, CudaVersion, DriverVersion, GpuIndex, GpuUuid, MemorySize, Minor};
use tranche_driver_protocol::GpuFacts;
use tranche_plan::inventory::{Gpu, Source, WarningKind};

/// The GPUs in `/proc/driver/nvidia/gpus`, in the order of their PCI addresses.
pub(crate) fn in_proc(scan: &Scan<'_>) -> Vec<Information> {
    const DIR: &str = "/driver/nvidia/gpus";
    let proc = &scan.roots.proc;
    let mut found = Vec::new();
    for name in scan.names(proc, DIR, "GPUs of the kernel module") {
        let path = format!("{DIR}/{name}/information");
        // A GPU that goes away takes its file with it, but the order of the others depends on it.
        let mut information = proc
            .text(&path)
            .map(|text| proc::information(&text))
            .unwrap_or_else(|e| {
                scan.findings.warn(proc.host(&path), format!("cannot be read: {e}"));
                Information::default()
            });
        information.pci = information.pci.or_else(|| name.parse().ok());
        found.push(information);
    }
    found.sort_by_key(|i| i.pci);
    found
}

/// Where the facts about GPUs come from.
pub(crate) fn source(report: Option<&NvmlReport>) -> Source {
    match report {
        Some(r) if r.driver.is_some() && (r.complete || !r.gpus.is_empty()) => Source::Nvml,
        _ => Source::Proc,
    }
}

/// All GPUs, by index.
pub(crate) fn collect(scan: &Scan<'_>, report: Option<&NvmlReport>, in_proc: &[Information]) -> Vec<Gpu> {
    let report = report.filter(|r| r.driver.is_some());
    let asked = report.iter().flat_map(|report| &report.gpus);
    let mut gpus: Vec<Gpu> = asked.filter_map(|facts| from_nvml(scan, facts, in_proc)).collect();
    gpus.extend(not_asked(scan, report, in_proc));
    gpus.sort_by_key(|g| g.index);
    drop_doubles(scan, &mut gpus);
    for gpu in &mut gpus {
        let path = format!("/dev/nvidia{}", gpu.minor);
        gpu.node = look(scan, &path, scan.majors.gpu(), Some(gpu.minor.0));
        if gpu.node.is_none() {
            let why = format!("has no device node {path}");
            scan.findings.degrade_device(gpu.label(), why);
        }
        gpu.numa_node = pci::numa_node(scan.roots, gpu.pci);
        gpu.pcie_root = pci::root(scan.roots, gpu.pci);
        gpu.dri = pci::dri(scan, gpu.pci);
        let facts = report.and_then(|r| r.gpus.iter().find(|f| f.index == gpu.index.0));
        match facts {
            Some(facts) => gpu.mig_devices = mig::from_nvml(scan, gpu, facts),
            None => {
                gpu.unnamed_instances = mig::in_proc(scan, gpu.minor);
                warn_unnamed(scan, gpu);
            }
        }
        mig::add_nodes(scan, gpu);
    }
    if let Some(report) = report {
        note_lost(scan, report, in_proc);
    }
    gpus
}

/// One warning for the MIG devices of a GPU that have no name and are left out.
fn warn_unnamed(scan: &Scan<'_>, gpu: &Gpu) {
    if gpu.unnamed_instances.is_empty() {
        return;
    }
    let names: Vec<String> = gpu.unnamed_instances.iter().map(ToString::to_string).collect();
    let text = format!(
        "is divided by MIG, and only NVML knows the names of its MIG devices: instances {} are left out, and so is the \
         GPU as a whole",
        tranche_core::text::some(&names)
    );
    scan.findings.warn(gpu.label(), text);
}

/// Notes the GPUs that do not answer: those for which NVML says so, and those that the kernel module lists and NVML
/// does not count. A GPU that is excluded on purpose is not missing.
fn note_lost(scan: &Scan<'_>, report: &NvmlReport, in_proc: &[Information]) {
    for index in &report.lost {
        scan.findings.degrade_device(format!("gpu {index}"), "does not answer");
    }
    // If NVML reports GPUs as lost, only by index, it is not known which entries in /proc they are.
    if !report.complete || !report.lost.is_empty() {
        return;
    }
    let is_counted = |information: &Information| {
        report.gpus.iter().any(|facts| {
            let (pci, minor) = (facts.pci_address(), facts.minor.map(Minor));
            (pci.is_some() && pci == information.pci) || (minor.is_some() && minor == information.minor)
        })
    };
    for information in in_proc.iter().filter(|i| !i.excluded && !is_counted(i)) {
        let text = "is known to the kernel module, and NVML does not count it: left out";
        scan.findings
            .warn_of(WarningKind::Incomplete, information.label(), text);
        scan.findings.degrade_device(information.label(), "does not answer");
    }
}

/// The GPUs that NVML was not asked about, from `/proc`. Without NVML these are all GPUs. If NVML stopped answering at
/// a GPU, they are the GPUs after that one, provided that both list GPUs in the same order.
fn not_asked(scan: &Scan<'_>, report: Option<&NvmlReport>, in_proc: &[Information]) -> Vec<Gpu> {
    if report.is_some_and(|report| report.complete) {
        return Vec::new();
    }
    let (excluded, present): (Vec<&Information>, Vec<&Information>) = in_proc.iter().partition(|i| i.excluded);
    for information in excluded {
        let text = "is excluded by a parameter of the kernel module and is left out";
        scan.findings.warn(information.label(), text);
    }
    let first = match report {
        None => 0,
        Some(report) => {
            let Some(stuck) = report.stuck_at else {
                return Vec::new();
            };
            let next = stuck.saturating_add(1);
            scan.findings
                .warn(format!("gpu {stuck}"), "does not answer and is left out");
            if !agrees(report, &present) {
                let text = "NVML was not asked, and which they are is not certain: left out";
                scan.findings.warn(format!("gpu {next} and later"), text);
                return Vec::new();
            }
            next
        }
    };
    let unknown = order::why_unknown(in_proc);
    if let Some(why) = unknown.as_ref().filter(|_| present.len() > first as usize) {
        let text = format!("have no index without NVML, because {why}: only their UUIDs name them");
        scan.findings.warn("GPUs", text);
    }
    let mut gpus = Vec::new();
    for (index, information) in (0..).zip(present).filter(|(index, _)| *index >= first) {
        if report.is_some() {
            let text = "NVML was not asked; memory, modes and MIG UUIDs are unknown";
            let name = information
                .pci
                .map_or_else(|| format!("gpu {index}"), |p| format!("gpu {p}"));
            scan.findings.warn_of(WarningKind::Incomplete, name, text);
        }
        let facts = GpuFacts {
            index,
            ..GpuFacts::default()
        };
        if let Some(mut gpu) = merge(scan, &facts, Some(information)) {
            gpu.index_is_known = unknown.is_none();
            gpus.push(gpu);
        }
    }
    gpus
}

/// Whether the GPUs that NVML reported before it stopped are at the same places in `/proc`, and both have as many.
fn agrees(report: &NvmlReport, present: &[&Information]) -> bool {
    let count = report.driver.as_ref().map_or(0, |d| d.count);
    let same_place = |facts: &GpuFacts| {
        let pci = facts.pci_address();
        let there = usize::try_from(facts.index).ok().and_then(|at| present.get(at));
        pci.is_some() && there.is_some_and(|i| i.pci == pci)
    };
    usize::try_from(count) == Ok(present.len()) && report.gpus.iter().all(same_place)
}

fn from_nvml(scan: &Scan<'_>, facts: &GpuFacts, in_proc: &[Information]) -> Option<Gpu> {
    let pci = facts.pci_address();
    let uuid: Option<GpuUuid> = facts.uuid.as_deref().and_then(|u| u.parse().ok());
    let information = in_proc
        .iter()
        .find(|i| (pci.is_some() && i.pci == pci) || (uuid.is_some() && i.uuid == uuid));
    merge(scan, facts, information)
}

/// Merges what both sources report about one GPU. A GPU without a UUID, a PCI address or a minor is left out: a
/// container could get another GPU instead.
fn merge(scan: &Scan<'_>, facts: &GpuFacts, information: Option<&Information>) -> Option<Gpu> {
    let empty = Information::default();
    let information = information.unwrap_or(&empty);
    // Without NVML, the place in a list does not name a GPU.
    let object = match information.pci.filter(|_| facts.pci.is_none()) {
        Some(_) => information.label(),
        None => format!("gpu {}", facts.index),
    };
    let uuid = scan.findings.parsed(&object, "UUID", facts.uuid.as_deref());
    let uuid = uuid.or_else(|| information.uuid.clone());
    let pci = scan.findings.parsed(&object, "PCI address", facts.pci.as_deref());
    let pci = pci.or(information.pci);
    let minor = facts.minor.map(Minor).or(information.minor);
    let missing = match (&uuid, pci, minor) {
        (Some(_), Some(_), Some(_)) => None,
        (None, _, _) => {
            Some("UUID not found (the driver knows it once the GPU was opened: run nvidia-smi, or nvidia-persistenced)")
        }
        (_, None, _) => Some("PCI address not found"),
        (_, _, None) => Some("minor number not found"),
    };
    if let Some(missing) = missing {
        scan.findings.warn(&object, format!("is left out: {missing}"));
        let why = "has no UUID, PCI address or minor number that NVML or /proc reports";
        scan.findings.degrade_device(&object, why);
    }
    let name = facts.name.as_deref().and_then(proc::printable);
    let compute_capability = facts.compute_capability.and_then(|(major, minor)| {
        Some(ComputeCapability {
            major: u32::try_from(major).ok().filter(|m| *m > 0)?,
            minor: u32::try_from(minor).ok()?,
        })
    });
    Some(Gpu {
        index: GpuIndex(facts.index),
        index_is_known: true,
        minor: minor?,
        uuid: uuid?,
        pci: pci?,
        name: name
            .or_else(|| information.model.clone())
            .unwrap_or_else(|| "unknown GPU".to_owned()),
        brand: facts.brand.as_deref().and_then(proc::printable),
        architecture: facts.architecture,
        compute_capability,
        sms: facts
            .cores
            .zip(compute_capability)
            .and_then(|(cores, capability)| sms(cores, capability)),
        memory: match facts.uses_system_memory {
            false => facts.memory.filter(|m| *m > 0).map(MemorySize::from_bytes),
            true => system_memory(scan, &object),
        },
        uses_system_memory: facts.uses_system_memory,
        mig: facts.mig,
        compute_mode: facts.compute_mode,
        persistence: facts.persistence,
        addressing: facts.addressing,
        numa_node: None,
        pcie_root: None,
        virtualization: facts.virtualization,
        node: None,
        dri: Vec::new(),
        mig_devices: Vec::new(),
        unnamed_instances: Vec::new(),
    })
}

/// The memory of the inspected machine, which `gpu` uses because it has none of its own.
fn system_memory(scan: &Scan<'_>, gpu: &str) -> Option<MemorySize> {
    const MEMINFO: &str = "/meminfo";
    let text = scan.roots.proc.text(MEMINFO);
    let memory = text.as_ref().ok().and_then(|text| proc::total_memory(text));
    if memory.is_none() {
        let why = match text {
            Ok(_) => "has no line MemTotal".to_owned(),
            Err(error) => format!("cannot be read: {error}"),
        };
        let path = scan.roots.proc.host(MEMINFO);
        let text = format!("uses the memory of the machine, whose size is unknown: {path} {why}");
        scan.findings.warn(gpu, text);
    }
    memory
}

/// The number of streaming multiprocessors of a GPU with so many CUDA cores; `None` if it is unknown how many of them
/// one multiprocessor has (CUDA programming guide, "Compute Capabilities": cores for single precision).
fn sms(cores: u32, capability: ComputeCapability) -> Option<u32> {
    let cores_of_one = match (capability.major, capability.minor) {
        (7, _) | (8, 0) => 64,
        (8..=10 | 12, _) => 128,
        _ => return None,
    };
    (cores > 0 && cores.is_multiple_of(cores_of_one)).then_some(cores / cores_of_one)
}

/// Leaves out a GPU that has the identity of an earlier one: two devices would have the same node.
fn drop_doubles(scan: &Scan<'_>, gpus: &mut Vec<Gpu>) {
    let (mut indices, mut uuids, mut minors, mut addresses) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    gpus.retain(|gpu| {
        // An array, because `&&` would skip the later sets, and all four must have the values of this GPU.
        let is_new = [
            indices.insert(gpu.index),
            uuids.insert(gpu.uuid.clone()),
            minors.insert(gpu.minor),
            addresses.insert(gpu.pci),
        ];
        let keep = is_new == [true; 4];
        if !keep {
            let why = "has a UUID, minor or PCI address of another GPU";
            scan.findings
                .warn(format!("gpu {}", gpu.index), format!("{why} and is left out"));
            scan.findings.degrade_device(gpu.label(), why);
        }
        keep
    });
}

/// The CUDA version of the driver, which only NVML reports. Warns if NVML and the kernel module disagree on the
/// driver's version.
pub(crate) fn driver_facts(scan: &Scan<'_>, report: &NvmlReport, module: &DriverVersion) -> Option<CudaVersion> {
    let facts = report.driver.as_ref()?;
    let version: Option<DriverVersion> = scan.findings.parsed("NVML", "driver version", facts.version.as_deref());
    if let Some(version) = version.filter(|v| v != module) {
        let text = format!(
            "says that the driver is {version}, the kernel module says {module}; reboot, or unload and load the module"
        );
        scan.findings.warn_of(WarningKind::Versions, "NVML", text);
    }
    let cuda = facts.cuda.and_then(|c| u32::try_from(c).ok()).filter(|c| *c >= 1000)?;
    Some(CudaVersion {
        major: cuda / 1000,
        minor: cuda % 1000 / 10,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiprocessors_follow_from_cores() {
        let capability = |major, minor| ComputeCapability { major, minor };
        // T4, A100, L4, H200 as their data sheets have them.
        assert_eq!(sms(2560, capability(7, 5)), Some(40));
        assert_eq!(sms(6912, capability(8, 0)), Some(108));
        assert_eq!(sms(7424, capability(8, 9)), Some(58));
        assert_eq!(sms(16896, capability(9, 0)), Some(132));
        assert_eq!(sms(2560, capability(6, 1)), None, "this table does not know it");
        assert_eq!(sms(100, capability(9, 0)), None, "not a whole number");
        assert_eq!(sms(0, capability(9, 0)), None);
    }
}
