//! The text of a policy for what the GPUs are used for, the machine after its MIG layouts were applied, and what each
//! container asks for then.

mod divide;
mod entries;

use super::machine::{Machine, MachineGpu, turn_off};
use super::place::Use;
use super::wishes::Wishes;
use crate::inventory::Inventory;
use crate::mig::{GpuSelector, GpuWish, Layout};
use divide::divide;
use entries::Entries;
use tranche_core::types::{Device, DeviceSelector, MemorySize, Percent, ShareName};

/// A policy that has to be checked.
#[derive(Debug)]
pub(super) struct Draft {
    /// The text.
    pub(super) text: String,
    /// The layouts in it, as `tranche mig apply --layout` takes them.
    pub(super) layouts: Vec<String>,
    /// The machine with these layouts.
    pub(super) inventory: Inventory,
    /// What each container asks for, in the order of the GPUs. Containers that wait for others are not in it.
    pub(super) grants: Vec<Grant>,
}

/// What a container asks for.
#[derive(Debug)]
pub(super) struct Grant {
    /// The name of its wish.
    pub(super) of: String,
    pub(super) device: Device,
    /// `None`: the whole device.
    pub(super) share: Option<ShareName>,
    /// Of a device that is shared by time-slicing: any turn.
    pub(super) is_turn: bool,
    pub(super) memory: Option<MemorySize>,
    pub(super) compute: Option<Percent>,
}

impl Draft {
    pub(super) fn new(wishes: &Wishes, machine: &Machine<'_>, uses: &[Use]) -> Self {
        let (mut entries, mut layouts, mut grants) = (Entries::default(), Vec::new(), Vec::new());
        let mut inventory = machine.inventory.clone();
        let mut used: Vec<(&MachineGpu<'_>, &Use)> = machine.gpus.iter().zip(uses).collect();
        used.retain(|(_, used)| **used != Use::Free);
        used.sort_by_key(|(one, _)| one.gpu.index);
        for (one, used) in used {
            let Some(gpu) = inventory.gpus.iter_mut().find(|gpu| gpu.uuid == one.gpu.uuid) else {
                continue;
            };
            let layout = match used {
                Use::Mig(instances) => divide(gpu, one, instances),
                _ if one.gpu.is_in_mig_mode() => {
                    turn_off(gpu);
                    Some(GpuWish::Off)
                }
                _ => None,
            };
            let gpus = GpuSelector::One(match gpu.index_is_known {
                true => DeviceSelector::Index(Device::whole(gpu.index)),
                false => DeviceSelector::GpuUuid(gpu.uuid.clone()),
            });
            layouts.extend(layout.map(|wish| Layout { gpus, wish }.to_string()));
            entries.add(gpu, used, wishes, &mut grants);
        }
        Self {
            text: entries.text(&layouts),
            layouts,
            inventory,
            grants,
        }
    }
}
