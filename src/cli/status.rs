//! `tranche status`: who holds what, what is free, what is not as expected, and the messages of hooks.

mod messages;
mod text;

use super::look::ObserveArgs;
use super::out;
use super::pages::{self, Page, seconds_of_watch};
use anyhow::Result;
use std::process::ExitCode;
use std::time::Duration;
use tranche_inspect::observed::{Observed, Status, kept, problems};

/// How far a line that is continued is indented.
const HANGING: usize = 4;

/// Show who holds which share since when, what is free, who waits, what the GPUs do, and messages of hooks
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Show the page again every SECONDS [default: 2]
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2",
          value_parser = seconds_of_watch)]
    watch: Option<Duration>,
    /// Also show the messages of hooks about containers that are gone
    #[arg(long)]
    messages: bool,
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
        None => page(args)?.show(),
        Some(period) => pages::each(period, !args.json, || page(args)),
    }
}

/// One page. What could be read is on it if the rest could not.
fn page(args: &Args) -> Result<Page> {
    let options = args.at.options();
    let observed = Observed::look(&options, !args.no_gpu)?;
    let kept = kept(&options.state_dir)?;
    let status = Status::of(&observed, &kept);
    let text = out::page_text(args.json, &status, HANGING, || {
        text::of(&status, observed.sees_ledger, observed.now, args.messages)
    })?;
    Ok(Page::new(text, problems(&observed, &kept)))
}
