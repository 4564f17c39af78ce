//! Layouts of MIG: one change at a time.

use super::commands::Commands;
use crate::control::nvml::Nvml;
use crate::mig::{MigJournal, MigOrder, MigTools, NodeUser, NvmlMachine, Record, users_of};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use tranche_core::broker::{MigAnswer, MigRequest};
use tranche_core::claims::Claims;
use tranche_core::error::{Context, Error, Result, line};
use tranche_core::types::GpuUuid;
use tranche_plan::inventory::{DeviceNode, Inventory};
use tranche_plan::mig::{ExactGpu, Layout, MigGpu, plan};
use tranche_state::mutex::lock;

/// Applies layouts, and puts back first what a killed broker left half changed. Without layouts, that is all.
///
/// # Errors
/// Returns what stands in the way. Nothing has changed then.
pub(super) fn apply(commands: &Commands<'_>, request: &MigRequest) -> Result<Value> {
    let _one = lock(&commands.mig);
    let changed = with_tools(commands, request.may_reset, |tools, nvml| {
        let layouts: Result<Vec<Layout>> = request.layouts.iter().map(|layout| layout.parse()).collect();
        let (gpus, _) = nvml.mig_gpus().map_err(|error| Error::failed("NVML", error))?;
        check_seen(&request.seen, &gpus)?;
        let holders = crate::mig::holders(&gpus, tools.claims)?;
        tools.apply(&MigOrder {
            target: plan(&layouts?, &gpus, &holders)?,
            may_change_mode: request.may_change_mode,
            may_reset: request.may_reset,
            services: request.services.clone(),
            record: Record::Layout,
        })
    })?;
    let answer = MigAnswer {
        changed: changed.iter().map(|gpu| gpu.uuid.to_string()).collect(),
    };
    serde_json::to_value(answer).about("broker", "cannot write its answer")
}

/// Calls `work` with what layouts are applied with, after what a killed broker left was put back. The caller has
/// [`Commands::mig`].
pub(super) fn with_tools<T>(
    commands: &Commands<'_>,
    may_reset: bool,
    work: impl FnOnce(&MigTools<'_>, &Nvml) -> Result<T>,
) -> Result<T> {
    let facts = commands.facts()?;
    let driver = commands.control.driver()?;
    let machine = NvmlMachine {
        nvml: driver.nvml,
        reset: driver.nvidia_smi.filter(|_| may_reset),
    };
    let claims = Claims::open(commands.state_dir())?;
    let tools = MigTools {
        machine: &machine,
        control: commands.control,
        claims: &claims,
        state_dir: commands.state_dir(),
        users: &|gpu| users(&facts.inventory, gpu),
        systemctl: driver.systemctl,
    };
    tools.finish()?;
    work(&tools, &machine.nvml)
}

/// Puts back what a broker that was killed left half changed.
pub(super) fn recover(commands: &Commands<'_>) {
    let is_unfinished = MigJournal::read(commands.state_dir()).map(|journal| journal.is_some());
    let put_back = match is_unfinished {
        Ok(false) => return,
        Ok(true) => apply(commands, &MigRequest::default()).map(drop),
        Err(error) => Err(error),
    };
    if let Err(error) = put_back {
        tracing::error!("{}", line(&error));
    }
}

/// Refuses a request if a GPU has something else than the person has seen who agreed to the plan.
fn check_seen(seen: &[String], gpus: &[MigGpu]) -> Result<()> {
    let has: BTreeSet<String> = gpus.iter().map(|gpu| ExactGpu::of(gpu).layout().to_string()).collect();
    match seen.iter().find(|seen| !has.contains(*seen)) {
        None => Ok(()),
        Some(_) => Err(
            Error::failed("MIG", "the instances have changed since the plan was made")
                .hint("look at the plan again: tranche mig plan"),
        ),
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
