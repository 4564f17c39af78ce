//! `tranche broker`: becomes the program `tranche-broker`, which serves hooks and users and keeps the machine as the
//! claims need it.

use super::place::SpecDirArg;
use super::sharing::SharingArgs;
use anyhow::Result;
use std::process::ExitCode;
use tracing::level_filters::LevelFilter;
use tranche_broker::command_line::BrokerOptions;
use tranche_core::error::Error;
use tranche_core::execute::become_program;
use tranche_core::own_programs;
use tranche_core::types::WaitTime;

/// Serve hooks and users who share GPUs: start MPS daemons, and keep the claims of users other than root
///
/// Runs in the foreground until it gets SIGTERM or SIGINT. MPS daemons that it started continue to run, and the next
/// broker finds them. docs/reference/broker.md describes when a broker is needed, and the protocol of its socket.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// End when nobody has asked for this long and nothing is managed; 0 means never [default: 60s if systemd started
    /// it by its socket, else 0]
    #[arg(long, value_name = "TIME")]
    idle: Option<WaitTime>,
    #[command(flatten)]
    specs: SpecDirArg,
    #[command(flatten)]
    at: SharingArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let options = BrokerOptions {
        at: args.at.options(),
        spec_dir: args.specs.spec_dir.clone(),
        idle: args.idle,
        level: LevelFilter::current(),
    };
    let path = own_programs::find("tranche-broker")?;
    let failed = become_program(&path, options.words());
    Err(Error::failed(path.display(), "cannot be executed")
        .from_source(failed)
        .into())
}
