//! `tranche plan`: the shares that the policy creates on this host, and what each guarantees.

mod text;

use super::out;
use super::sharing::SharingArgs;
use anyhow::Result;
use std::process::ExitCode;
use tranche_state::held::earlier::earlier;
use tranche_state::planning;

/// Show the shares that the policy creates on this host, and what each guarantees
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    // First: clap would show it below the heading of the options before it.
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: SharingArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let options = args.at.options();
    let (inventory, sharing) = planning::required(&options)?;
    let earlier = earlier(&inventory, Some(&sharing.plan), &options.state_dir)?;
    earlier.all_lines().for_each(out::note);
    out::either(args.json, &*sharing.plan, || text::of(&inventory, &sharing))?;
    Ok(ExitCode::SUCCESS)
}
