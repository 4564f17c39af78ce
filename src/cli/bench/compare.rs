//! `tranche bench compare`: two runs beside each other.

use super::read;
use crate::out;
use anyhow::Result;
use std::path::PathBuf;
use std::process::ExitCode;
use tranche_bench::compare::compare;

/// Compare the results of two runs, cell by cell
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file of the first run, as --output writes it
    #[arg(value_name = "BEFORE", value_hint = clap::ValueHint::FilePath)]
    before: PathBuf,
    /// The file of the second one
    #[arg(value_name = "AFTER", value_hint = clap::ValueHint::FilePath)]
    after: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let comparison = compare(&read(&args.before)?, &read(&args.after)?);
    out::either(args.json, &comparison, || comparison.text())?;
    Ok(ExitCode::SUCCESS)
}
