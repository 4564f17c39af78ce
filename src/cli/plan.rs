//! `tranche plan`: the shares that the policy creates on this host, and what each guarantees; without a policy, the
//! devices that can be given whole, and how to begin to share them.

mod text;

use super::out;
use super::sharing::SharingArgs;
use anyhow::{Result, bail};
use std::process::ExitCode;
use tranche_host::examine;
use tranche_plan::policy::Policy;
use tranche_plan::share;
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
    let inventory = examine::inventory(&options.host)?;
    if inventory.gpus.is_empty() {
        bail!(examine::no_gpu(&inventory));
    }
    let sharing = planning::of(&inventory, &options)?;
    let Some(sharing) = sharing.filter(|sharing| !sharing.plan.is_empty()) else {
        let nothing = share::plan(&Policy::default(), &inventory)?;
        out::either(args.json, &nothing, || text::not_shared_at_all(&inventory))?;
        return Ok(ExitCode::SUCCESS);
    };
    let earlier = earlier(&inventory, Some(&sharing.plan), &options.state_dir)?;
    earlier.all_lines().for_each(out::note);
    out::either(args.json, &*sharing.plan, || text::of(&inventory, &sharing))?;
    Ok(ExitCode::SUCCESS)
}
