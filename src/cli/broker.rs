//! `tranche broker`: serves hooks and users, and keeps the machine as the claims need it.

use super::place::SpecDirArg;
use super::sharing::SharingArgs;
use super::stop;
use anyhow::Result;
use std::fs::File;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tranche_broker::control::{Control, ControlOptions};
use tranche_broker::facts::HostNow;
use tranche_broker::serve::{ServeOptions, Socket, serve};
use tranche_core::error::Context;
use tranche_core::sys::terminal;
use tranche_core::types::{HostPath, WaitTime};
use tranche_state::accounts::AccountSources;
use tranche_state::held::root_only;

/// After how long a broker ends that a service manager starts again when it is needed.
const IDLE: Duration = Duration::from_secs(60);

/// Serve hooks and users who share GPUs: start MPS daemons, and keep the claims of users other than root
///
/// Runs in the foreground until it gets SIGTERM or SIGINT. MPS daemons that it started continue to run, and the next
/// broker finds them. docs/broker.md describes when a broker is needed, and the protocol of its socket.
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

/// Gives up the controlling terminal, and reads nothing of what is typed there. The broker keeps its number, parent and
/// process group, so that Ctrl-C, the jobs of a shell and a service manager work as before.
fn leave_terminal() -> tranche_core::error::Result<()> {
    terminal::leave().about("broker", "cannot give up its terminal")?;
    let nothing = File::open("/dev/null").about("/dev/null", "cannot be opened")?;
    nix::unistd::dup2_stdin(nothing).about("broker", "cannot close its standard input")
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let at = args.at.options();
    let state_dir = HostPath::absolute(&at.state_dir)?;
    let state_dir = state_dir.as_path();
    root_only::check(state_dir)?;
    leave_terminal()?;
    let stop = stop::signals("broker")?;
    let socket = Socket::open(state_dir)?;
    let idle = match args.idle.map(WaitTime::get) {
        Some(Duration::ZERO) => None,
        None => socket.is_given().then_some(IDLE),
        idle => idle,
    };
    let options = ServeOptions {
        state_dir: state_dir.to_owned(),
        policy: at.policy.clone(),
        spec_dir: std::path::absolute(&args.specs.spec_dir)?,
        accounts: AccountSources::default(),
        idle,
    };
    let host = Arc::new(HostNow::new(at.clone()));
    // With what an earlier broker changed. Only the owner of the socket may use it.
    let control = Control::open(ControlOptions::of(&at)?, host.clone())?;
    serve(&socket, &options, &control, &*host, stop.as_fd())?;
    Ok(ExitCode::SUCCESS)
}
