//! `nvidia-mig-parted checkpoint` and `restore`.

use super::apply::{Cost, change, check, layout, only_mode, turn_on};
use super::node::Node;
use super::{HooksArgs, ViewArgs};
use crate::mig::wanted::changes;
use crate::out;
use anyhow::Result;
use clap::builder::BoolishValueParser;
use std::path::PathBuf;
use tranche_core::error::{Context, Error};
use tranche_core::types::GpuUuid;
use tranche_plan::inventory::MigMode;
use tranche_plan::mig::mig_parted::Checkpoint;
use tranche_plan::mig::{Layout, plan};
use tranche_protocol::PolicyCheck;
use tranche_state::replace;

/// Write what the GPUs have into a file, for restore
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file
    #[arg(
        short = 'f',
        long,
        value_name = "FILE",
        env = "MIG_PARTED_CHECKPOINT_FILE",
        hide_env = true
    )]
    checkpoint_file: PathBuf,
    #[command(flatten)]
    view: ViewArgs,
}

/// Give the GPUs of a checkpoint what they had, at the same places; no GPU is reset
#[derive(Debug, clap::Args)]
pub(super) struct RestoreArgs {
    /// The file
    #[arg(
        short = 'f',
        long,
        value_name = "FILE",
        env = "MIG_PARTED_CHECKPOINT_FILE",
        hide_env = true
    )]
    checkpoint_file: PathBuf,
    #[command(flatten)]
    hooks: HooksArgs,
    /// Change the MIG mode, and not the MIG devices
    #[arg(short, long, env = "MIG_PARTED_MODE_CHANGE_ONLY", hide_env = true, value_parser = BoolishValueParser::new())]
    mode_only: bool,
    #[command(flatten)]
    view: ViewArgs,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let node = Node::look(&args.view)?;
    let problems = &node.view.problems;
    if let Some(problem) = problems.first() {
        let error = Error::failed("checkpoint", "it would lack a GPU, so none was written");
        return Err(error.hint(problem).into());
    }
    let text = Checkpoint::of(&node.view.gpus)?.json()?;
    let file = &args.checkpoint_file;
    replace::write(file, &text).about(file.display(), "cannot be written")?;
    out::result(&format!("{}: written\n", file.display()))
}

pub(super) fn restore(args: &RestoreArgs) -> Result<()> {
    let file = args.checkpoint_file.display().to_string();
    let text = std::fs::read_to_string(&args.checkpoint_file);
    let text = text.map_err(|error| Error::usage(&file, "cannot be read").from_source(error))?;
    let checkpoint = Checkpoint::read(&file, &text)?;
    let cost = Cost {
        may_reset: false,
        to_reset: "restore resets no GPU; change its mode first: tranche mig apply --mode --reset --layout GPU:empty, or \
                   GPU:off",
        services: args.hooks.services()?,
    };
    let view = Node::look(&args.view)?.view;
    let modes = checkpoint.modes(&file, &view.gpus)?;
    if args.mode_only {
        let differs = modes.iter().filter(|(gpu, mode)| gpu.mode.current != *mode);
        let layouts: Vec<Layout> = differs.map(|(gpu, mode)| layout(&gpu.uuid, only_mode(*mode))).collect();
        check(&args.view, &layouts, &view, PolicyCheck::Modes)?;
        let target = plan(&layouts, &view.gpus, &view.holders)?;
        change(&args.view, &cost, &changes(target, &view)?, PolicyCheck::Modes)?;
        return out::result(&format!("the GPUs have the MIG modes of {file}\n"));
    }
    let on = modes.into_iter().filter(|(_, mode)| *mode == MigMode::Enabled);
    let on: Vec<GpuUuid> = on.map(|(gpu, _)| gpu.uuid.clone()).collect();
    let view = turn_on(&args.view, &cost, view, |gpu| on.contains(&gpu.uuid))?;
    let target = checkpoint.target(&file, &view.gpus)?;
    let layouts: Vec<Layout> = target.iter().map(|gpu| gpu.layout()).collect();
    check(&args.view, &layouts, &view, PolicyCheck::Layouts)?;
    // The planner names who stands in the way.
    let target = plan(&layouts, &view.gpus, &view.holders)?;
    change(&args.view, &cost, &changes(target, &view)?, PolicyCheck::Layouts)?;
    out::result(&format!("the GPUs have what {file} says\n"))
}
