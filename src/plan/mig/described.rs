//! The GPUs of a saved or built-in inventory, as a driver would describe them. An inventory has no profiles and no
//! places, so both come from a table of the product, and the instances lie where the planner puts them.

use super::place::{WantedInstance, place};
use super::plan::offered;
use super::{ComputeInstance, ExactGpu, GpuInstance, InstanceProfile, MigGpu, Placement};
use crate::inventory::{Gpu, Inventory, MigDevice};
use std::collections::{BTreeMap, BTreeSet};
use tranche_core::error::{Context, Error, Result};
use tranche_core::types::{GpuInstanceId, MigProfile};

/// The table of each product: a GPU in MIG mode without instances.
const PRODUCTS: [&str; 7] = [
    include_str!("../sim/mig/a30.json"),
    include_str!("../sim/mig/a100-40.json"),
    include_str!("../sim/mig/a100-80.json"),
    include_str!("../sim/mig/h100-80.json"),
    include_str!("../sim/mig/h200.json"),
    include_str!("../sim/mig/b200.json"),
    include_str!("../sim/mig/rtx-pro-6000.json"),
];

/// The GPUs of `inventory` that have MIG, by index, and a line for each that cannot be described.
pub fn described(inventory: &Inventory) -> (Vec<MigGpu>, Vec<String>) {
    let (mut gpus, mut problems) = (Vec::new(), Vec::new());
    for gpu in inventory.gpus.iter().filter(|gpu| gpu.mig.is_some()) {
        match describe(gpu) {
            Ok(described) => gpus.push(described),
            Err(error) => problems.push(error.to_string()),
        }
    }
    gpus.sort_by_key(|gpu| gpu.index);
    (gpus, problems)
}

fn describe(gpu: &Gpu) -> Result<MigGpu> {
    let name = format!("gpu {}", gpu.index);
    let table = table(&gpu.name).about(&name, "the table of its product cannot be read")?;
    let table = table.ok_or_else(|| Error::failed(&name, format!("no table of {} is built in", gpu.name)))?;
    let empty = MigGpu {
        uuid: gpu.uuid.clone(),
        index: gpu.index,
        pci: gpu.pci,
        mode: gpu.mig.unwrap_or(table.mode),
        virtualization: gpu.virtualization,
        ..table
    };
    let instances = instances(gpu, &empty, &name)?;
    Ok(MigGpu { instances, ..empty })
}

fn table(product: &str) -> serde_json::Result<Option<MigGpu>> {
    for text in PRODUCTS {
        let table: MigGpu = serde_json::from_str(text)?;
        if table.product == product {
            return Ok(Some(table));
        }
    }
    Ok(None)
}

/// The instances of `gpu` with the numbers of the inventory, in places of `empty` where all of them fit.
fn instances(gpu: &Gpu, empty: &MigGpu, name: &str) -> Result<Vec<GpuInstance>> {
    let mut devices: BTreeMap<GpuInstanceId, Vec<&MigDevice>> = BTreeMap::new();
    for device in &gpu.mig_devices {
        devices.entry(device.gpu_instance).or_default().push(device);
    }
    let mut wanted: BTreeMap<WantedInstance, Vec<GpuInstanceId>> = BTreeMap::new();
    for (id, devices) in &devices {
        wanted.entry(one_wanted(devices, empty, name)?).or_default().push(*id);
    }
    let all = wanted
        .iter()
        .flat_map(|(one, ids)| ids.iter().map(move |_| one.clone()));
    let placed = place(empty, &all.collect::<Vec<_>>(), &BTreeSet::new());
    let (ExactGpu { instances, .. }, _) =
        placed.ok_or_else(|| Error::failed(name, "has instances that do not fit beside each other"))?;
    let mut found = Vec::new();
    for exact in instances {
        let is_it = |one: &&mut (&WantedInstance, &mut Vec<GpuInstanceId>)| {
            one.0.profile == exact.profile && one.0.compute.iter().eq(exact.compute.iter().map(|part| &part.slices))
        };
        let mut left = wanted.iter_mut().filter(|(_, ids)| !ids.is_empty()).collect::<Vec<_>>();
        let Some((_, ids)) = left.iter_mut().find(is_it) else {
            continue;
        };
        let id = ids.remove(0);
        found.push(GpuInstance {
            id,
            profile: exact.profile,
            placement: exact.placement,
            compute: compute(
                devices.get(&id).map_or(&[], Vec::as_slice),
                empty.profile(exact.profile),
            ),
        });
    }
    Ok(found)
}

fn one_wanted(devices: &[&MigDevice], empty: &MigGpu, name: &str) -> Result<WantedInstance> {
    let profile = devices.iter().find_map(|device| device.profile.clone());
    let profile = profile.ok_or_else(|| Error::failed(name, "has a MIG device without a profile"))?;
    let whole = MigProfile {
        compute_slices: None,
        ..profile
    };
    let mut compute: Vec<u32> = devices.iter().filter_map(|device| device.compute_slices).collect();
    compute.sort_unstable_by(|a, b| b.cmp(a));
    Ok(WantedInstance {
        profile: offered(empty, name, &whole)?.id,
        start: None,
        compute,
    })
}

/// The compute instances of one GPU instance, one after the other.
fn compute(devices: &[&MigDevice], profile: Option<&InstanceProfile>) -> Vec<ComputeInstance> {
    let mut start = 0;
    let one = |device: &&MigDevice| {
        let size = device.compute_slices.unwrap_or(1);
        let placement = Placement { start, size };
        start += size;
        Some(ComputeInstance {
            id: device.compute_instance,
            profile: profile?.compute_of(size)?.id,
            placement: Some(placement),
            uuid: device.uuid.clone(),
        })
    };
    devices.iter().filter_map(one).collect()
}
