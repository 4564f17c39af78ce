//! Who may open which device node, where the policy says `sharing.access: enforce`: a function of the host, the plan
//! and what is held.
//!
//! The driver refuses a process every GPU whose node the process has not opened, so the nodes of GPUs and of MIG
//! instances are the fence, and the nodes of the driver as a whole stay open (open-gpu-kernel-modules: `nvidia_ioctl`,
//! `uvm_api_register_gpu`). The driver puts its own modes back at each start of CUDA, unless its module has the option
//! `NVreg_ModifyDeviceFiles=0`; then nobody but tranche makes nodes.

mod list;
mod params;

pub use list::{AccessList, Right};
pub use params::NodeParams;

use crate::inventory::{ControlRole, DeviceNode, Gpu, Inventory, MigDevice};
use crate::policy::Access;
use crate::share::Plan;
use std::collections::{BTreeMap, BTreeSet};
use tranche_core::types::{DeviceKey, HostPath};

/// The option of the driver's module that leaves device nodes alone.
pub const OPTION: &str = "NVreg_ModifyDeviceFiles";

/// A node that tranche keeps, and who may open it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAccess<'a> {
    /// The node.
    pub node: &'a DeviceNode,
    /// The GPU that it is for, or of whose MIG instances; `None` for one of the driver as a whole.
    pub gpu: Option<&'a Gpu>,
    /// Who may open it.
    pub opening: Opening,
}

/// Who may open a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// Who may do so by the parameters of the driver.
    ByDriver,
    /// Every user, by these permission bits of root's node.
    Everybody(u32),
    /// Root, and those on the list.
    Listed(AccessList),
}

/// A claim, as far as it opens nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opener {
    /// The device of which something is held.
    pub device: DeviceKey,
    /// The users as whom the processes of its holder run.
    pub uids: BTreeSet<u32>,
}

/// Who may open every node without a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MonitorIds {
    /// Users.
    pub uids: BTreeSet<u32>,
    /// Groups.
    pub gids: BTreeSet<u32>,
}

/// The permission bits that the driver gives the nodes of capabilities, apart from that for the configuration of MIG
/// (`DeviceFileMode` in `/proc/driver/nvidia/capabilities`).
const CAPABILITY: u32 = 0o444;

/// The permission bits of nodes that every user may open.
const EVERYBODY: u32 = 0o666;

/// Every node that tranche keeps under `plan`, by path, and who may open it while `openers` hold something. That for
/// the configuration of MIG is not among them: it is root's alone.
pub fn nodes<'a>(
    inventory: &'a Inventory,
    plan: &Plan,
    openers: &[Opener],
    monitors: &MonitorIds,
) -> Vec<NodeAccess<'a>> {
    let listed = |right: Right, may: &dyn Fn(&DeviceKey) -> bool| {
        let held = openers.iter().filter(|opener| may(&opener.device));
        let uids = held.flat_map(|opener| opener.uids.iter().copied());
        Opening::Listed(AccessList::new(
            right,
            uids.chain(monitors.uids.iter().copied()),
            monitors.gids.iter().copied(),
        ))
    };
    let is_closed = |gpu: &Gpu| closes(plan, gpu);
    let mut found: BTreeMap<&HostPath, NodeAccess<'a>> = BTreeMap::new();
    let mut add = |node: &'a DeviceNode, gpu, opening| found.insert(&node.host, NodeAccess { node, gpu, opening });
    for control in &inventory.nodes.control {
        // The driver's tools put those of UVM back to this mode, whatever its module's options are.
        if matches!(control.role, ControlRole::Ctl | ControlRole::Modeset) {
            add(
                &control.node,
                None,
                match inventory.gpus.iter().any(is_closed) {
                    true => Opening::Everybody(EVERYBODY),
                    false => Opening::ByDriver,
                },
            );
        }
    }
    for gpu in &inventory.gpus {
        if let Some(node) = &gpu.node {
            add(
                node,
                Some(gpu),
                match is_closed(gpu) {
                    true => listed(Right::ReadAndWrite, &|held| *held.gpu() == gpu.uuid),
                    false => Opening::ByDriver,
                },
            );
        }
        for mig in &gpu.mig_devices {
            let key = DeviceKey::mig(gpu.uuid.clone(), mig.gpu_instance, mig.compute_instance);
            for (node, of_instance) in capabilities(mig) {
                let may = |held: &DeviceKey| match of_instance {
                    // Its compute instances need it too.
                    Instance::Gpu => held.shares_memory_with(&key),
                    Instance::Compute => held.overlaps(&key),
                };
                add(
                    node,
                    Some(gpu),
                    match is_closed(gpu) {
                        true => listed(Right::Read, &may),
                        false => Opening::Everybody(CAPABILITY),
                    },
                );
            }
        }
    }
    if let Some(node) = &inventory.nodes.mig_monitor {
        add(
            node,
            None,
            match inventory.gpus.iter().any(is_closed) {
                true => listed(Right::Read, &|_| false),
                false => Opening::Everybody(CAPABILITY),
            },
        );
    }
    found.into_values().collect()
}

/// Whether `plan` closes the nodes of `gpu`: it gives out something of it by claims. Everybody may use the others, as
/// without a policy.
fn closes(plan: &Plan, gpu: &Gpu) -> bool {
    plan.access == Access::Enforce && plan.devices.iter().any(|split| *split.key.gpu() == gpu.uuid)
}

/// What a capability's node is for.
enum Instance {
    Gpu,
    Compute,
}

fn capabilities(mig: &MigDevice) -> impl Iterator<Item = (&DeviceNode, Instance)> {
    let gpu = mig.gpu_instance_cap.iter().map(|node| (node, Instance::Gpu));
    gpu.chain(mig.compute_instance_cap.iter().map(|node| (node, Instance::Compute)))
}

#[cfg(test)]
mod tests;
