//! The machine whose layouts are changed, as the process knows it that changes them.

use super::apply::MigTools;
use super::real::NvmlMachine;
use crate::control::MachineControl;
use crate::control::nvml::Nvml;
use crate::facts::HostFacts;
use std::ffi::OsString;
use std::path::Path;
use tranche_core::claims::Claims;
use tranche_core::error::Result;
use tranche_core::types::GpuUuid;
use tranche_plan::inventory::{DeviceNode, Inventory};
use tranche_state::node_users::{NodeUser, users_of};
use tranche_state::planning::PolicyOptions;

/// The machine. One change is made at a time: a broker has a lock for that, and without a broker the process that
/// changes layouts has that of the broker.
#[derive(Clone, Copy)]
pub struct MigHost<'a> {
    /// What it has.
    pub facts: &'a dyn HostFacts,
    /// What manages MPS daemons and knows the driver.
    pub control: &'a dyn MachineControl,
    /// The directory of the ledger.
    pub state_dir: &'a Path,
    /// The policy, whose layouts the next boot makes.
    pub policy: &'a PolicyOptions,
    /// The arguments of `tranche cdi refresh`, where none was made before.
    pub refresh: &'a [OsString],
}

impl MigHost<'_> {
    /// Calls `work` with what layouts are applied with, after what a killed process left was put back.
    ///
    /// # Errors
    /// Returns an error if the host cannot be examined or what was left cannot be finished, and those of `work`.
    pub(crate) fn with_tools<T>(
        &self,
        may_reset: bool,
        work: impl FnOnce(&MigTools<'_>, &Nvml) -> Result<T>,
    ) -> Result<T> {
        let facts = self.facts.now()?;
        let driver = self.control.driver()?;
        let with_drm = facts.inventory.gpus.iter().filter(|gpu| !gpu.dri.is_empty());
        let machine = NvmlMachine {
            nvml: driver.nvml,
            reset: driver.nvidia_smi.filter(|_| may_reset),
            with_drm: with_drm.map(|gpu| gpu.uuid.clone()).collect(),
        };
        let claims = Claims::open(self.state_dir)?;
        let tools = MigTools {
            machine: &machine,
            control: self.control,
            claims: &claims,
            state_dir: self.state_dir,
            users: &|gpu| users(&facts.inventory, gpu),
            systemctl: driver.systemctl,
        };
        tools.finish()?;
        work(&tools, &machine.nvml)
    }
}

/// The processes that have a GPU open, or an instance of it.
fn users(inventory: &Inventory, gpu: &GpuUuid) -> Result<Vec<NodeUser>> {
    let number = |node: &DeviceNode| (u64::from(node.major), u64::from(node.minor));
    let found = inventory.gpus.iter().find(|found| found.uuid == *gpu);
    let nodes = found.into_iter().flat_map(|gpu| {
        let of_devices = gpu
            .mig_devices
            .iter()
            .flat_map(|mig| [&mig.gpu_instance_cap, &mig.compute_instance_cap]);
        of_devices.chain([&gpu.node]).flatten().map(number)
    });
    users_of(Path::new("/proc"), &nodes.collect())
}
