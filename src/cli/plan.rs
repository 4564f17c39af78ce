//! `tranche plan`: which shares the policy makes of this host, and what each is worth.

mod text;

use super::earlier;
use super::out;
use super::sharing::{self, SharingArgs};
use crate::error::Result;
use std::process::ExitCode;

/// Show which shares the policy makes of this host, and what each is worth
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    at: SharingArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let (inventory, sharing) = sharing::required(&args.at)?;
    earlier::earlier(&inventory, Some(&sharing.plan), &args.at.state)?.report();
    if args.json {
        out::json(&sharing.plan)?;
    } else {
        out::result(&text::of(&inventory, &sharing))?;
    }
    Ok(ExitCode::SUCCESS)
}
