//! `tranche mig restore`.

use super::ViewArgs;
use crate::out;
use anyhow::Result;
use std::process::ExitCode;
use tranche_broker::mig;
use tranche_core::error::Error;
use tranche_core::text::some;
use tranche_protocol::{MigRestoreAnswer, MigRestoreRequest};

/// Make the layouts of the policy, and those that tranche has made, as at boot: no instance survives one
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    view: ViewArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let answer: MigRestoreAnswer = args.view.changed_by(&MigRestoreRequest {}, mig::restore)?;
    let changed: Vec<String> = answer.changed.iter().map(|gpu| format!("gpu {gpu}")).collect();
    if !changed.is_empty() {
        out::note(format!("{}: changed", some(&changed)));
    }
    answer.notes.iter().for_each(out::note);
    let failed: Vec<Error> = answer.failed.into_iter().map(Error::from).collect();
    Ok(out::complain_all(&failed))
}
