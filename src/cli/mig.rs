//! `tranche mig`: how GPUs are divided by MIG.

mod apply;
mod configuration;
mod parted;
mod picture;
mod profiles;
mod restore;
mod status;
mod wanted;

pub use parted::run_if_called;

use super::out;
use super::sharing::SharingArgs;
use anyhow::Result;
use std::process::ExitCode;
use tranche_broker::mig::MigView;

/// The verbs of `tranche mig`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    Status(status::Args),
    Profiles(profiles::Args),
    Plan(Box<apply::PlanArgs>),
    Apply(Box<apply::Args>),
    Undo(Box<apply::UndoArgs>),
    Restore(Box<restore::Args>),
    Export(status::ExportArgs),
}

/// The command line of `nvidia-mig-parted`.
#[cfg(test)]
pub(super) fn parted_command() -> clap::Command {
    parted::command()
}

/// Where to look.
#[derive(Debug, clap::Args)]
struct ViewArgs {
    /// Print JSON; docs/how-to/mig.md describes the fields
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    at: SharingArgs,
}

impl ViewArgs {
    fn look(&self) -> Result<MigView> {
        let view = MigView::look(&self.at.options())?;
        view.problems.iter().for_each(out::note);
        Ok(view)
    }
}

/// Runs the verb.
///
/// # Errors
/// Returns the error of the verb.
pub(super) fn run(verb: &Verb) -> Result<ExitCode> {
    match verb {
        Verb::Status(args) => status::run(args),
        Verb::Profiles(args) => profiles::run(args),
        Verb::Plan(args) => apply::show_plan(args),
        Verb::Apply(args) => apply::run(args),
        Verb::Undo(args) => apply::undo(args),
        Verb::Restore(args) => restore::run(args),
        Verb::Export(args) => status::export(args),
    }
}
