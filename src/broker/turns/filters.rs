//! The rules of cgroups for the devices that are given by turns.

use super::holder::TurnHolder;
use super::machine::TurnFault;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tranche_core::claims::Claims;
use tranche_core::error::{Error, Kind, Result};
use tranche_core::ledger::process::{CgroupState, Machine};
use tranche_core::ledger::{InitProcess, Strategy};
use tranche_core::types::DeviceKey;
use tranche_plan::inventory::Inventory;
use tranche_state::turns::TurnRecord;
use tranche_turns::filter::{DeviceFilter, DeviceNumber};

/// The nodes of a device, which are closed to those who are away.
pub fn nodes(inventory: &Inventory, device: &DeviceKey) -> Vec<DeviceNumber> {
    let gpus = inventory.gpus.iter().filter(|gpu| gpu.uuid == *device.gpu());
    let nodes = gpus.filter_map(|gpu| gpu.node.as_ref());
    let number = |node: &tranche_plan::inventory::DeviceNode| DeviceNumber {
        major: node.major,
        minor: node.minor,
    };
    nodes.map(number).collect()
}

/// The rules of the cgroups of a holder.
///
/// # Errors
/// Returns an error if one of its containers has none of its own.
pub(super) fn filters(holder: &TurnHolder, machine: &Machine) -> std::result::Result<Vec<DeviceFilter>, TurnFault> {
    let living = holder.inits.iter().filter(|init| !machine.has_ended(init));
    let filter = |init: &InitProcess| {
        let path = cgroup(init, machine)?;
        DeviceFilter::of(&path).map_err(|error| TurnFault::Failed(error.to_string()))
    };
    living.map(filter).collect()
}

/// The directory of the cgroup whose rules are those of a container.
fn cgroup(init: &InitProcess, machine: &Machine) -> std::result::Result<PathBuf, TurnFault> {
    let Some(cgroup) = &init.cgroup else {
        let what = format!(
            "process {} has no cgroup of its own, so it cannot be kept from the device",
            init.pid
        );
        return Err(TurnFault::Failed(what));
    };
    // The ledger records that of the controller `devices` if it is the container's own. Another one has no rules.
    match machine.cgroup(cgroup)? {
        CgroupState::Gone => Err(TurnFault::Failed(format!("{}: the cgroup was removed", cgroup.path))),
        CgroupState::Version1 | CgroupState::Version2 => Ok(PathBuf::from(&cgroup.path)),
    }
}

/// Lets everybody open again what is held by turns, while no broker runs: nobody gives these devices any more. Returns
/// a line for each who stays suspended, or cannot open its device.
///
/// # Errors
/// Returns an error if it is unknown who holds something.
pub fn open_all(state_dir: &Path, inventory: &Inventory) -> Result<Vec<Error>> {
    let Some(claims) = Claims::existing(state_dir)? else {
        return Ok(Vec::new());
    };
    let books = claims.books()?;
    let by_turns = books.claims().filter(|claim| claim.part.strategy() == Strategy::Turns);
    let devices: BTreeSet<DeviceKey> = by_turns.map(|claim| claim.device.clone()).collect();
    let mut left = Vec::new();
    for device in devices {
        let (record, nodes) = (TurnRecord::read(state_dir, &device)?, nodes(inventory, &device));
        for (key, holder) in TurnHolder::all(&books, &device) {
            if record.suspended().any(|(suspended, _)| *suspended == key) {
                let what = "is suspended in the memory of the machine, and nothing else resumes it";
                let hint = "end it, or install tranche again and run tranche resume";
                left.push(Error::new(Kind::Found, holder.who(), what).hint(hint));
            }
            for filter in filters(&holder, claims.machine()).map_err(|fault| Error::failed(holder.who(), fault))? {
                if let Err(error) = filter.open(&nodes) {
                    left.push(Error::new(Kind::Found, holder.who(), error.to_string()));
                }
            }
        }
    }
    Ok(left)
}
