//! `tranche status`: who holds what, what is free, what is not as expected, and the messages of hooks.

mod messages;
mod text;

use super::look::ObserveArgs;
use super::out;
use super::pages::{self, seconds_of_watch};
use anyhow::Result;
use std::process::ExitCode;
use std::time::Duration;
use tranche_inspect::observed::{Observed, Status, kept, problems};

/// Show who holds which share since when, what is free, who waits, what the GPUs do, and messages of hooks
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show the page again every SECONDS [default: 2]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2",
          value_parser = seconds_of_watch)]
    watch: Option<Duration>,
    /// Do not ask NVML, the driver's library, for memory, utilisation and processes
    #[arg(long)]
    no_gpu: bool,
    /// Print JSON; docs/reference/claims.md describes the fields
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: ObserveArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    match args.watch {
        None => page(args),
        Some(period) => pages::each(period, !args.json, || page(args)),
    }
}

/// Shows one page. What could not be read is said on stderr.
fn page(args: &Args) -> Result<ExitCode> {
    let options = args.at.options();
    let observed = Observed::look(&options, !args.no_gpu)?;
    let kept = kept(&options.state_dir)?;
    let status = Status::of(&observed, &kept);
    out::either(args.json, &status, || {
        text::of(&status, observed.sees_ledger, observed.now)
    })?;
    // What could be read is shown all the same.
    Ok(out::complain_all(problems(&observed, &kept)))
}
