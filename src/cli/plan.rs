//! `tranche plan`: the shares that the policy creates on this host, and what each guarantees; without a policy, the
//! devices that can be given whole, and how to begin to share them.

mod text;

use super::out;
use super::sharing::SharingArgs;
use anyhow::{Result, bail};
use serde::Serialize;
use std::process::ExitCode;
use std::sync::Arc;
use tranche_bench::kept::MeasuredHere;
use tranche_host::examine;
use tranche_inspect::measured;
use tranche_plan::policy::Policy;
use tranche_plan::share::{self, Plan};
use tranche_state::held::earlier::earlier;
use tranche_state::planning;
use tranche_state::turn_tries;

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

/// The result with `--json`.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    plan: &'a Plan,
    /// What `tranche bench` has measured on this machine; empty for another machine.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    measured_here: &'a [MeasuredHere],
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let options = args.at.options();
    let inventory = examine::inventory(&options.host)?;
    if inventory.gpus.is_empty() {
        bail!(examine::no_gpu(&inventory));
    }
    let sharing = planning::of(&inventory, &options)?;
    let Some(mut sharing) = sharing.filter(|sharing| !sharing.plan.is_empty()) else {
        let nothing = share::plan(&Policy::default(), &inventory)?;
        out::either(args.json, &nothing, || text::not_shared_at_all(&inventory))?;
        return Ok(ExitCode::SUCCESS);
    };
    let earlier = earlier(&inventory, Some(&sharing.plan), &options.state_dir)?;
    earlier.all_lines().for_each(out::note);
    let driver = inventory.driver.as_ref();
    if options.host.inventory.is_none() {
        Arc::make_mut(&mut sharing.plan).take_in(&turn_tries::read(&options.state_dir)?, driver);
    }
    let measured = measured::here(&options.state_dir, &options.host, driver, &sharing.plan.devices);
    let report = Report {
        plan: &sharing.plan,
        measured_here: &measured,
    };
    out::either(args.json, &report, || text::of(&inventory, &sharing, &measured))?;
    Ok(ExitCode::SUCCESS)
}
