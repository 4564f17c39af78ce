//! The process that holds the device while it is measured: see [`tranche_measure::guard`].

use crate::sharing::MachineArgs;
use anyhow::Result;
use std::ffi::OsString;
use std::process::ExitCode;
use tracing::level_filters::LevelFilter;
use tranche_core::types::DeviceKey;
use tranche_measure::guard::guard;
use tranche_state::planning::PlanOptions;

/// Hold a device for a run, and put everything back at the end of standard input
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Its key in the ledger
    #[arg(value_name = "KEY")]
    device: DeviceKey,
    #[command(flatten)]
    at: MachineArgs,
}

/// The words of the command line for the device of this key.
pub(super) fn words(at: &PlanOptions, key: &DeviceKey) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["bench".into(), "guard".into(), key.to_string().into()];
    words.extend(at.arguments());
    words
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let at = args.at.options();
    guard(&at, &args.device, LevelFilter::current())?;
    Ok(ExitCode::SUCCESS)
}
