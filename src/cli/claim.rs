//! `tranche claim`: shares that are reserved for a container that starts later.

mod create;
mod gc;
mod list;
mod release;

pub(super) use list::names;

use super::place::StateArgs;
use anyhow::Result;
use std::process::ExitCode;

/// The verbs of `tranche claim`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Reserve shares for a container that starts later, and print the CDI name with which the container requests them
    Create(Box<create::Args>),
    /// List the claims that were made with create
    List(PlaceArgs),
    /// Show one claim
    Show(list::ShowArgs),
    /// Release a claim, a share, or all that a container holds
    Release(release::Args),
    /// Release claims that have ended, and remove specifications and temporary files that were left behind
    Gc(gc::Args),
}

/// The options of the verbs that do not examine the host.
#[derive(Debug, clap::Args)]
pub(super) struct PlaceArgs {
    #[command(flatten)]
    state: StateArgs,
    /// Print JSON; docs/reference/claims.md describes the fields
    #[arg(long)]
    json: bool,
}

pub(super) fn run(verb: &Verb) -> Result<ExitCode> {
    match verb {
        Verb::Create(args) => create::run(args),
        Verb::List(args) => list::list(args),
        Verb::Show(args) => list::show(args),
        Verb::Release(args) => release::run(args),
        Verb::Gc(args) => gc::run(args),
    }
}
