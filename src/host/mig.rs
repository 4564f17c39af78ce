//! MIG devices.
//!
//! In `/proc` and in `mig-minors`, a GPU is named by its minor, and an instance by the ids that NVML reports too.

use super::nodes::{cap_minors, cap_node};
use super::proc::{MigCapability, numbered};
use super::scan::Scan;
use std::collections::{BTreeMap, BTreeSet};
use tranche_core::types::{ComputeInstanceId, GpuInstanceId, MemorySize, MigIndex, MigProfile, Minor};
use tranche_driver_protocol::{GpuFacts, MigFacts};
use tranche_plan::inventory::{Gpu, MigDevice, MigInstance, WarningKind};

/// The MIG devices that NVML reports, without their nodes.
pub(crate) fn from_nvml(scan: &Scan<'_>, gpu: &Gpu, facts: &GpuFacts) -> Vec<MigDevice> {
    let mut devices: Vec<MigDevice> = Vec::new();
    for facts in &facts.mig_devices {
        let object = format!("gpu {}:{}", gpu.index, facts.index);
        let ids = facts.gpu_instance.zip(facts.compute_instance);
        let Some((gi, ci)) = ids else {
            let text = "is left out: NVML does not report its instances, which name its capabilities";
            scan.findings.warn_of(WarningKind::Incomplete, &object, text);
            scan.findings
                .degrade_device(&object, "has no instances that NVML reports");
            continue;
        };
        let uuid = scan.findings.parsed(&object, "UUID", facts.uuid.as_deref());
        if uuid.is_none() {
            scan.findings.degrade_device(&object, "has no UUID that NVML reports");
        }
        devices.push(MigDevice {
            index: MigIndex(facts.index),
            uuid,
            gpu_instance: GpuInstanceId(gi),
            compute_instance: ComputeInstanceId(ci),
            profile: profile(scan, &object, facts),
            memory: facts.memory_mib.filter(|m| *m > 0).map(MemorySize::from_mib),
            gpu_slices: facts.gpu_slices.filter(|s| *s > 0),
            compute_slices: facts.compute_slices.filter(|s| *s > 0),
            sms: facts.sms.filter(|s| *s > 0),
            engines: facts.engines,
            gpu_instance_cap: None,
            compute_instance_cap: None,
        });
    }
    devices
}

/// `NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb`: the profile is the last word.
fn profile(scan: &Scan<'_>, object: &str, facts: &MigFacts) -> Option<MigProfile> {
    let name = facts.name.as_deref()?;
    let (_, profile) = name.rsplit_once(" MIG ").unwrap_or(("", name));
    scan.findings.parsed(object, "profile", Some(profile.trim()))
}

/// The instances that the driver has files for, by GPU instance and compute instance. They have no names, because NVML
/// numbers MIG devices in an order of its own, and only NVML knows their UUIDs.
///
/// Every GPU has the directory, in MIG mode or not (`osRmCapRegisterGpu` in NVIDIA's open kernel modules makes
/// `gpuN/mig` when a GPU is attached), so only the instances in it show that the GPU is in MIG mode.
pub(crate) fn in_proc(scan: &Scan<'_>, gpu: Minor) -> Vec<MigInstance> {
    let dir = format!("/driver/nvidia/capabilities/gpu{gpu}/mig");
    let mut found = BTreeSet::new();
    // A driver without MIG has no such directory.
    let proc = &scan.roots.proc;
    for entry in proc.list(&dir).unwrap_or_default() {
        let Some(gi) = numbered(&entry.name, "gi") else {
            continue;
        };
        let gpu_instance = GpuInstanceId(gi);
        let entries = proc.list(&format!("{dir}/gi{gi}"));
        let entries = entries.unwrap_or_else(|e| {
            scan.findings
                .warn(proc.host(&dir), format!("instance {gi} cannot be listed: {e}"));
            Vec::new()
        });
        let mut compute: Vec<Option<ComputeInstanceId>> = entries
            .iter()
            .filter_map(|e| numbered(&e.name, "ci"))
            .map(|ci| Some(ComputeInstanceId(ci)))
            .collect();
        if compute.is_empty() {
            compute.push(None);
        }
        found.extend(compute.into_iter().map(|compute_instance| MigInstance {
            gpu_instance,
            compute_instance,
        }));
    }
    found.into_iter().collect()
}

/// Finds the capability nodes of a GPU's MIG devices.
pub(crate) fn add_nodes(scan: &Scan<'_>, gpu: &mut Gpu) {
    let minor = gpu.minor;
    let capabilities = |mig: &MigDevice| {
        [
            MigCapability::GpuInstance(minor, mig.gpu_instance),
            MigCapability::ComputeInstance(minor, mig.gpu_instance, mig.compute_instance),
        ]
    };
    let wanted: BTreeSet<MigCapability> = gpu.mig_devices.iter().flat_map(capabilities).collect();
    let wanted: Vec<MigCapability> = wanted.into_iter().collect();
    let known = cap_minors(scan, &wanted);
    // Compute instances of one GPU instance share its node, so each node is examined once.
    let mut nodes = BTreeMap::new();
    for capability in wanted {
        let node = known.get(&capability).and_then(|m| cap_node(scan, *m));
        if node.is_none() {
            let text = format!("has no node for {}: no container can use it", capability.file());
            scan.findings.warn_of(WarningKind::Incomplete, gpu.label(), &text);
            scan.findings.degrade_device(gpu.label(), text);
        }
        nodes.insert(capability, node);
    }
    for mig in &mut gpu.mig_devices {
        let [gi, ci] = capabilities(mig).map(|c| nodes.get(&c).cloned().flatten());
        mig.gpu_instance_cap = gi;
        mig.compute_instance_cap = ci;
    }
}
