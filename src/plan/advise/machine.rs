//! What a machine can do: which of its GPUs have MIG, and which can be shared by MPS and by time-slicing.

use super::place::Use;
use crate::inventory::{Gpu, HostDevice, Inventory, MigMode, MigState, VirtualizationMode};
use crate::mig::{InstanceProfile, MigGpu, described};
use crate::policy::read;
use crate::share;
use std::collections::BTreeMap;
use tranche_core::error::line;
use tranche_core::types::MemorySize;

/// A machine.
pub(super) struct Machine<'a> {
    pub(super) inventory: &'a Inventory,
    /// The GPUs, those that are not in MIG mode first.
    pub(super) gpus: Vec<MachineGpu<'a>>,
}

/// A GPU.
pub(super) struct MachineGpu<'a> {
    pub(super) gpu: &'a Gpu,
    /// As it is divided now; `None` if it cannot be divided, or if the driver does not list its profiles.
    pub(super) now: Option<MigGpu>,
    /// The same in MIG mode without instances.
    pub(super) empty: Option<MigGpu>,
    /// Why shares with memory cannot be made under MPS, and shares without.
    pub(super) no_mps: [Option<String>; 2],
    /// Why it cannot be shared by time-slicing.
    pub(super) no_turns: Option<String>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(inventory: &'a Inventory, mig: &[MigGpu]) -> Self {
        let tables: BTreeMap<_, MigGpu> = described(inventory).0.into_iter().map(|gpu| (gpu.index, gpu)).collect();
        let undivided = undivided(inventory);
        let describe = |gpu: &'a Gpu| {
            let said = mig.iter().find(|one| one.uuid == gpu.uuid)?;
            // Some drivers list no profiles while MIG mode is off; the tables of products have them.
            let profiles = match said.profiles.is_empty() {
                true => tables.get(&gpu.index)?.profiles.clone(),
                false => said.profiles.clone(),
            };
            let now = MigGpu {
                profiles,
                ..said.clone()
            };
            (!now.is_piece() && !now.profiles.is_empty()).then_some(now)
        };
        let on = MigState {
            current: MigMode::Enabled,
            pending: MigMode::Enabled,
        };
        let one = |gpu: &'a Gpu| {
            let now = describe(gpu);
            let empty = now.clone().map(|now| MigGpu {
                instances: Vec::new(),
                mode: on,
                ..now
            });
            let probe = |section: &str, parts: &str| refused(&undivided, gpu, section, parts);
            MachineGpu {
                gpu,
                now,
                empty,
                no_mps: ["shares: [{name: a, memory: 1Mi}]", "shares: [{name: a}]"].map(|parts| probe("mps", parts)),
                no_turns: probe("timeSlicing", "replicas: 2"),
            }
        };
        let mut gpus: Vec<MachineGpu<'a>> = inventory.gpus.iter().map(one).collect();
        gpus.sort_by_key(|one| (one.gpu.is_in_mig_mode(), one.gpu.index));
        Self { inventory, gpus }
    }

    /// Nothing of it is used.
    pub(super) fn unused(&self) -> Vec<Use> {
        self.gpus.iter().map(|_| Use::Free).collect()
    }

    /// Whether each GPU is a vGPU.
    pub(super) fn is_vgpu(&self) -> bool {
        let mut gpus = self.gpus.iter();
        gpus.all(|one| one.gpu.virtualization == Some(VirtualizationMode::Vgpu))
    }

    /// Whether no GPU has twice that much memory.
    pub(super) fn is_more_than_half(&self, memory: MemorySize) -> bool {
        let largest = self.gpus.iter().filter_map(|one| one.gpu.memory).max();
        largest.is_some_and(|largest| memory.mib().saturating_mul(2) > largest.mib())
    }
}

impl MachineGpu<'_> {
    /// Whether it has this much memory, in MiB. Any memory is enough for a need that is not known.
    pub(super) fn has_memory(&self, mib: Option<u64>) -> bool {
        mib.is_none_or(|mib| self.gpu.memory.is_some_and(|has| has.mib() >= mib))
    }

    pub(super) fn name(&self) -> String {
        HostDevice {
            gpu: self.gpu,
            mig: None,
        }
        .name()
    }

    /// The profiles that are proposed: without special engines, and smaller than the whole GPU.
    pub(super) fn profiles(&self) -> impl Iterator<Item = &InstanceProfile> {
        let all = self.empty.iter().flat_map(|gpu| &gpu.profiles);
        all.filter(|profile| profile.name.attributes.is_empty() && profile.slices < self.slices())
    }

    /// The compute slices of the whole GPU; 0 without MIG.
    pub(super) fn slices(&self) -> u32 {
        let all = self.empty.iter().flat_map(|gpu| &gpu.profiles);
        all.map(|profile| profile.slices).max().unwrap_or(0)
    }
}

/// `inventory` without MIG mode.
fn undivided(inventory: &Inventory) -> Inventory {
    let mut copy = inventory.clone();
    for gpu in &mut copy.gpus {
        turn_off(gpu);
    }
    copy
}

/// What the inventory says of a GPU after MIG mode was turned off.
pub(super) fn turn_off(gpu: &mut Gpu) {
    gpu.mig = gpu.mig.map(|_| MigState {
        current: MigMode::Disabled,
        pending: MigMode::Disabled,
    });
    gpu.mig_devices.clear();
    gpu.unnamed_instances.clear();
}

/// Why a policy with this entry for `gpu` is refused; `None` if it is not.
fn refused(inventory: &Inventory, gpu: &Gpu, section: &str, parts: &str) -> Option<String> {
    let name = HostDevice { gpu, mig: None }.name();
    let entry = format!("{{name: nvidia.com/gpu, devices: [\"{name}\"], {parts}}}");
    let text = format!("sharing: {{{section}: {{resources: [{entry}]}}}}\n");
    let planned = read::parse("policy", &text).and_then(|read| share::plan(&read.policy, inventory));
    match planned {
        Ok(plan) => plan.absent.first().map(|absent| absent.why.clone()),
        // The place is in a policy that nobody has seen.
        Err(error) => {
            let line = line(&error);
            Some(
                line.strip_prefix("policy:")
                    .and_then(|rest| rest.split_once(": "))
                    .map_or(line.clone(), |(_, what)| what.to_owned()),
            )
        }
    }
}
