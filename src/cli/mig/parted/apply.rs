//! `nvidia-mig-parted apply`, and what `restore` has in common with it.

use super::node::Node;
use super::{FileArgs, HooksArgs, ViewArgs};
use crate::mig::apply::{request, send, show};
use crate::mig::wanted::{Change, changes};
use crate::out;
use anyhow::Result;
use clap::builder::BoolishValueParser;
use tranche_broker::mig::{MigView, check_policy};
use tranche_core::error::Error;
use tranche_core::types::{DeviceSelector, GpuUuid};
use tranche_plan::inventory::MigMode;
use tranche_plan::mig::mig_parted::{Configuration, NodeGpu};
use tranche_plan::mig::{GpuSelector, GpuWish, Layout, MigGpu, plan};
use tranche_protocol::{MigRequest, PolicyCheck};
use tranche_state::planning;

/// Change the GPUs to a configuration, with their MIG mode; GPUs that have it are not touched
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    file: FileArgs,
    #[command(flatten)]
    hooks: HooksArgs,
    /// Reset no GPU. A GPU that cannot change its MIG mode without a reset is an error then
    #[arg(short, long, env = "MIG_PARTED_SKIP_RESET", hide_env = true, value_parser = BoolishValueParser::new())]
    skip_reset: bool,
    #[command(flatten)]
    view: ViewArgs,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let configuration = args.file.read()?;
    let cost = Cost {
        may_reset: !args.skip_reset,
        to_reset: "leave --skip-reset out",
        services: args.hooks.services()?,
    };
    let node = Node::look(&args.view)?;
    let gpus = node.gpus();
    let file = args.file.config_file.display().to_string();
    configuration.check_selectors(&file, &gpus)?.iter().for_each(out::note);
    let mode_only = args.file.mode_only;
    let layouts = missing(&configuration, &gpus, mode_only)?;
    let check_of = match mode_only {
        true => PolicyCheck::Modes,
        false => PolicyCheck::Layouts,
    };
    check(&args.view, &layouts, &node.view, check_of)?;
    let view = turn_on(&args.view, &cost, node.view, |gpu| {
        layouts
            .iter()
            .any(|layout| layout.names(gpu) && layout.wish != GpuWish::Off)
    })?;
    let target = plan(&layouts, &view.gpus, &view.holders)?;
    change(&args.view, &cost, &changes(target, &view)?, check_of)?;
    out::result(&format!(
        "the GPUs have what configuration {} says\n",
        configuration.name
    ))
}

/// What a change may cost.
pub(super) struct Cost {
    pub(super) may_reset: bool,
    /// What a person does to allow a reset.
    pub(super) to_reset: &'static str,
    pub(super) services: Vec<String>,
}

/// What `gpu` is to have.
pub(super) fn layout(gpu: &GpuUuid, wish: GpuWish) -> Layout {
    Layout {
        gpus: GpuSelector::One(DeviceSelector::GpuUuid(gpu.clone())),
        wish,
    }
}

/// MIG mode on or off, and nothing else.
pub(super) fn only_mode(mode: MigMode) -> GpuWish {
    match mode {
        MigMode::Disabled => GpuWish::Off,
        MigMode::Enabled => GpuWish::empty(),
    }
}

/// The layouts of the GPUs that do not have yet what the configuration says. A GPU without MIG is skipped if the entry
/// is for all devices.
fn missing(configuration: &Configuration, gpus: &[NodeGpu<'_>], mode_only: bool) -> Result<Vec<Layout>> {
    let mut layouts = Vec::new();
    for gpu in gpus {
        let Some(entry) = configuration.entry(gpu) else {
            continue;
        };
        let wanted = match entry.wish {
            GpuWish::Off => MigMode::Disabled,
            GpuWish::Instances(_) => MigMode::Enabled,
        };
        let has_mode = gpu.mode.unwrap_or(MigMode::Disabled) == wanted;
        let is_done = match mode_only {
            true => has_mode,
            false => gpu.has(&entry.wish),
        };
        let is_skipped = gpu.mode.is_none() && entry.gpus.indices.is_none();
        if is_done || is_skipped {
            continue;
        }
        let Some(now) = gpu.divided else {
            let what = match gpu.mode {
                None => "has no MIG, and the configuration turns it on",
                Some(_) => "NVML does not say how it is divided",
            };
            return Err(Error::failed(format!("gpu {}", gpu.index), what).into());
        };
        let wish = match mode_only {
            true => only_mode(wanted),
            false => entry.wish.clone(),
        };
        layouts.push(layout(&now.uuid, wish));
    }
    Ok(layouts)
}

/// Refuses what the next boot would change again, because the policy says something else. It is found before anything
/// changes: the change has several steps.
pub(super) fn check(at: &ViewArgs, layouts: &[Layout], view: &MigView, what: PolicyCheck) -> Result<()> {
    let policy = planning::policy_or_none(&at.at.options().policy)?;
    Ok(check_policy(layouts, &policy, &view.gpus, what)?)
}

/// Turns MIG mode on where the driver does not say before what the GPU offers. Returns the GPUs as they are then.
pub(super) fn turn_on(
    at: &ViewArgs,
    cost: &Cost,
    view: MigView,
    is_wanted: impl Fn(&MigGpu) -> bool,
) -> Result<MigView> {
    let is_silent = |gpu: &&MigGpu| gpu.mode.current == MigMode::Disabled && gpu.profiles.is_empty() && is_wanted(gpu);
    let silent = view.gpus.iter().filter(is_silent);
    let first: Vec<Layout> = silent.map(|gpu| layout(&gpu.uuid, GpuWish::empty())).collect();
    if first.is_empty() {
        return Ok(view);
    }
    let target = plan(&first, &view.gpus, &view.holders)?;
    change(at, cost, &changes(target, &view)?, PolicyCheck::Modes)?;
    Ok(Node::look(at)?.view)
}

/// Shows the changes, and has the broker make them.
pub(super) fn change(at: &ViewArgs, cost: &Cost, changes: &[Change<'_>], check: PolicyCheck) -> Result<()> {
    for change in changes {
        let needs_reset = change.now.mode.current != change.target.mode && change.now.resetless != Some(true);
        if needs_reset && !cost.may_reset {
            let error = Error::failed(
                format!("gpu {}", change.now.index),
                "changes its MIG mode with a reset only",
            );
            return Err(error.hint(cost.to_reset).into());
        }
    }
    show(changes, false)?;
    if changes.is_empty() {
        return Ok(());
    }
    let request = MigRequest {
        may_change_mode: true,
        may_reset: cost.may_reset,
        services: cost.services.clone(),
        check,
        ..request(changes)
    };
    send(at, &request, changes)?;
    Ok(())
}
