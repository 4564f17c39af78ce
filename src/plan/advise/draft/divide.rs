//! A GPU after its layout was applied.

use super::super::machine::MachineGpu;
use super::super::place::Instance;
use crate::inventory::{Gpu, MigDevice, MigMode, MigState};
use crate::mig::{ExactGpu, ExactInstance, GpuWish, WantedInstance, WishedInstance, place};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use tranche_core::types::{ComputeInstanceId, GpuInstanceId, MigIndex};

/// Gives `gpu` these instances. Returns what has to be applied.
pub(super) fn divide(gpu: &mut Gpu, one: &MachineGpu<'_>, instances: &[Instance]) -> Option<GpuWish> {
    let mut counts = BTreeMap::new();
    for instance in instances {
        let profile = instance.profile.clone();
        *counts.entry(WishedInstance { profile, start: None }).or_insert(0) += 1;
    }
    let wish = GpuWish::Instances(counts);
    let has = one.now.as_ref().map(|now| ExactGpu::of(now).layout().wish);
    if has.is_some_and(|has| has.is_alike(&wish)) {
        return Some(wish);
    }
    let wanted: Vec<WantedInstance> = instances.iter().map(|instance| instance.wanted.clone()).collect();
    let (exact, _) = one
        .empty
        .as_ref()
        .and_then(|empty| place(empty, &wanted, &BTreeSet::new()))?;
    let mut placed = exact.instances;
    // As the driver numbers them on every product that was seen: the largest first.
    placed.sort_by_key(|one| (Reverse(one.name.gpu_slices), Reverse(one.name.memory_gb), one.placement));
    gpu.mig = Some(MigState {
        current: MigMode::Enabled,
        pending: MigMode::Enabled,
    });
    gpu.unnamed_instances.clear();
    gpu.mig_devices = (0..)
        .zip(placed)
        .map(|(number, placed)| device(number, placed, one))
        .collect();
    Some(wish)
}

fn device(number: u32, placed: ExactInstance, one: &MachineGpu<'_>) -> MigDevice {
    let profile = one.empty.as_ref().and_then(|empty| empty.profile(placed.profile));
    MigDevice {
        index: MigIndex(number),
        uuid: None,
        gpu_instance: GpuInstanceId(number),
        compute_instance: ComputeInstanceId(0),
        profile: Some(placed.name),
        memory: profile.map(|profile| profile.memory),
        gpu_slices: profile.map(|profile| profile.slices),
        compute_slices: profile.map(|profile| profile.slices),
        sms: profile.map(|profile| profile.sms),
        engines: profile.map(|profile| profile.engines),
        gpu_instance_cap: None,
        compute_instance_cap: None,
    }
}
