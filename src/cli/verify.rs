//! `tranche verify`: whether a running container gets what its share promises.

use super::look::{self, LookArgs};
use super::out;
use super::place::{HostArgs, StateArgs};
use anyhow::Result;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tranche_inspect::verify::{VerifyOptions, verify};

/// Ask CUDA in a running container what it gives, and compare that with what the container's share promises
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 as promised, 4 something is not as promised, 1 CUDA could not be asked.")]
pub(super) struct Args {
    /// The container, by its name or id
    container: String,
    /// The engine that has it: podman, docker, nerdctl, or the path of one [default: the one that knows the container]
    #[arg(long, value_name = "ENGINE")]
    engine: Option<PathBuf>,
    /// Also allocate the largest block of memory that CUDA gives, for a moment
    #[arg(long)]
    largest_allocation: bool,
    /// Run the tranche-verify that is mounted at PATH in the container, instead of copying it there
    #[arg(long, value_name = "PATH")]
    at: Option<String>,
    /// The file of tranche-verify on this host [default: the one that was installed with tranche]
    #[arg(long, value_name = "FILE", env = "TRANCHE_VERIFY")]
    program: Option<PathBuf>,
    /// Give up if CUDA does not answer for this long
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = look::seconds)]
    deadline: Duration,
    /// Print JSON; docs/reference/claims.md describes the fields
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    look: LookArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let verified = verify(&VerifyOptions {
        container: args.container.clone(),
        engine: args.engine.clone(),
        largest_allocation: args.largest_allocation,
        at: args.at.clone(),
        program: args.program.clone(),
        deadline: args.deadline,
        state_dir: args.state.state_dir.clone(),
        host: args.host.options(&args.look),
    })?;
    out::either(args.json, &verified, || verified.text())?;
    Ok(verified.fault().map_or(ExitCode::SUCCESS, out::code))
}
