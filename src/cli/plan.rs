//! `tranche plan`: the shares that the policy creates on this host, and what each guarantees.

mod text;

use super::earlier;
use super::out;
use super::sharing::{self, SharingArgs};
use anyhow::Result;

use std::process::ExitCode;

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
    let (inventory, sharing) = sharing::required(&args.at)?;
    earlier::earlier(&inventory, Some(&sharing.plan), &args.at.state)?.report();
    out::either(args.json, &sharing.plan, || text::of(&inventory, &sharing))?;
    Ok(ExitCode::SUCCESS)
}
