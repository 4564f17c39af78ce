//! What a change of a GPU does, in lines for people.

use super::exact::ExactGpu;
use super::{ExactInstance, GpuInstance, MigGpu};
use crate::inventory::MigMode;
use std::collections::BTreeMap;

impl ExactGpu {
    /// What is done on the way from `now`, a line for each instance; empty if nothing is. What is destroyed comes
    /// first.
    pub fn differences(&self, now: &MigGpu) -> Vec<String> {
        let mut lines = Vec::new();
        let changes_mode = now.mode.current != self.mode;
        for one in &now.instances {
            let kept = self.instances.iter().any(|wanted| is(wanted, one));
            if changes_mode || !kept {
                lines.push(format!("destroy {} at {}", name(now, one), one.placement.start));
            }
        }
        if changes_mode {
            let (verb, cost) = match (self.mode, now.resetless) {
                (MigMode::Enabled, Some(true)) => ("on", ""),
                (MigMode::Disabled, Some(true)) => ("off", ""),
                (MigMode::Enabled, _) => ("on", ", which resets the GPU"),
                (MigMode::Disabled, _) => ("off", ", which resets the GPU"),
            };
            lines.push(format!("turn MIG mode {verb}{cost}"));
        } else if now.mode.pending != self.mode {
            lines.push("take back the change of the MIG mode that waits for a reset".to_owned());
        }
        let mut created = Vec::new();
        for wanted in &self.instances {
            match now.instances.iter().find(|one| !changes_mode && is(wanted, one)) {
                None => created.push(format!(
                    "create {} at {}{}",
                    wanted.name,
                    wanted.placement.start,
                    parts(wanted)
                )),
                Some(one) => compute(now, one, wanted, &mut lines, &mut created),
            }
        }
        lines.append(&mut created);
        lines
    }
}

fn is(wanted: &ExactInstance, one: &GpuInstance) -> bool {
    (wanted.profile, wanted.placement) == (one.profile, one.placement)
}

fn name(now: &MigGpu, one: &GpuInstance) -> String {
    match now.profile(one.profile) {
        Some(profile) => profile.name.to_string(),
        None => format!("GPU instance {}", one.id),
    }
}

/// ` with compute instances of 2 and 1 slices`; nothing for the usual one that has all slices.
fn parts(wanted: &ExactInstance) -> String {
    let slices: Vec<String> = wanted
        .compute
        .iter()
        .map(|compute| compute.slices.to_string())
        .collect();
    match slices.as_slice() {
        [] => " without a compute instance".to_owned(),
        [one] if *one == wanted.name.gpu_slices.to_string() => String::new(),
        slices => format!(" with compute instances of {} slices", slices.join(" + ")),
    }
}

/// The compute instances that change in a GPU instance that stays.
fn compute(
    now: &MigGpu,
    one: &GpuInstance,
    wanted: &ExactInstance,
    destroyed: &mut Vec<String>,
    created: &mut Vec<String>,
) {
    let has = ExactGpu::of(now);
    let Some(has) = has.instances.iter().find(|has| is(has, one)) else {
        return;
    };
    let mut balance: BTreeMap<u32, i64> = BTreeMap::new();
    for compute in &wanted.compute {
        *balance.entry(compute.slices).or_default() += 1;
    }
    for compute in &has.compute {
        *balance.entry(compute.slices).or_default() -= 1;
    }
    let place = format!("{} at {}", wanted.name, wanted.placement.start);
    for (slices, change) in balance {
        let count = change.unsigned_abs();
        match change {
            0 => {}
            1.. => created.push(format!(
                "create {count} compute instances of {slices} slices in {place}"
            )),
            _ => destroyed.push(format!(
                "destroy {count} compute instances of {slices} slices in {place}"
            )),
        }
    }
}
