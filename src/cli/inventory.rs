//! `tranche inventory`: what a host has, as JSON that `--inventory` takes elsewhere.

use super::look::LookArgs;
use super::out;
use super::place::HostArgs;
use anyhow::Result;
use std::process::ExitCode;
use tranche_host::examine;

/// Print a description of the host as JSON, for --inventory on another machine
#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    at: HostArgs,
    #[command(flatten)]
    how: LookArgs,
}

/// Writes the inventory. A host without a driver has one too.
///
/// # Errors
/// As [`examine::inventory`].
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    out::json(&examine::inventory(&args.at.options(&args.how))?)?;
    Ok(ExitCode::SUCCESS)
}
