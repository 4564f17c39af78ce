//! `tranche claim`: shares that are set aside for a container to come.

mod books;
mod create;
mod gc;
mod list;
mod release;
mod spec;

use super::place::{SpecDirArgs, StateArgs};
use crate::error::Result;
use std::process::ExitCode;

/// Arguments of `tranche claim`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Set shares aside for a container to come; print the name of the device to give it
    Create(Box<create::Args>),
    /// List the claims that were made with `create`
    List(list::ListArgs),
    /// Show one claim
    Show(list::ShowArgs),
    /// Give back a claim, or what a container holds
    Release(release::Args),
    /// Give back what nothing can hold any more, and remove the specifications of claims that are gone
    Gc(gc::Args),
}

/// Where the verbs that do not look at the host find everything.
#[derive(Debug, clap::Args)]
struct PlaceArgs {
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    specs: SpecDirArgs,
    /// Print JSON; docs/sharing.md describes the fields
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    match &args.verb {
        Verb::Create(args) => create::run(args),
        Verb::List(args) => list::list(args),
        Verb::Show(args) => list::show(args),
        Verb::Release(args) => release::run(args),
        Verb::Gc(args) => gc::run(args),
    }
}
