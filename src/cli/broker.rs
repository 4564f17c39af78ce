//! `tranche broker`: serves hooks and users, and keeps the machine as the claims need it.

use super::place::SpecDirArg;
use super::sharing::SharingArgs;
use super::stop;
use crate::accounts::AccountSources;
use crate::control::{Control, ControlOptions};
use crate::error::Context;
use crate::facts::HostNow;
use crate::held::root_only;
use crate::planning::PlanOptions;
use crate::serve::{ServeOptions, Socket, serve};
use crate::types::{HostPath, WaitTime};
use anyhow::Result;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// After how long a broker ends that a service manager starts again when it is needed.
const IDLE: Duration = Duration::from_secs(60);

/// Serve hooks and users who share GPUs: start MPS daemons, and keep the claims of users other than root
///
/// Runs in the foreground until it gets SIGTERM or SIGINT. MPS daemons that it started continue to run, and the next
/// broker finds them. docs/broker.md describes when a broker is needed, and the protocol of its socket.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// End when nobody has asked for this long and nothing is managed; 0 means never [default: 60s if systemd started it
    /// by its socket, else 0]
    #[arg(long, value_name = "TIME")]
    idle: Option<WaitTime>,
    #[command(flatten)]
    specs: SpecDirArg,
    #[command(flatten)]
    at: SharingArgs,
}

pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let at = args.at.options();
    let state_dir = HostPath::absolute(&at.state_dir)?;
    let state_dir = state_dir.as_path();
    root_only::check(state_dir)?;
    let stop = stop::signals("broker")?;
    let socket = Socket::open(state_dir)?;
    let idle = match args.idle.map(WaitTime::get) {
        Some(Duration::ZERO) => None,
        None => socket.is_given().then_some(IDLE),
        idle => idle,
    };
    let options = ServeOptions {
        state_dir: state_dir.to_owned(),
        spec_dir: std::path::absolute(&args.specs.spec_dir)?,
        accounts: AccountSources::default(),
        idle,
    };
    let host = Arc::new(HostNow::new(at.clone()));
    let control = control_of(&at, Arc::clone(&host))?;
    serve(&socket, &options, &control, &*host, stop.as_fd())?;
    Ok(ExitCode::SUCCESS)
}

/// What changes the machine, with what an earlier broker changed. Only the owner of the [`Socket`] may use it.
///
/// # Errors
/// Returns an error if the ledger or the journals cannot be read.
pub(super) fn control(at: &PlanOptions) -> Result<Control> {
    control_of(at, Arc::new(HostNow::new(at.clone())))
}

fn control_of(at: &PlanOptions, host: Arc<HostNow>) -> Result<Control> {
    let options = ControlOptions {
        state_dir: HostPath::absolute(&at.state_dir)?,
        root: at.host.roots.root.clone().unwrap_or_else(|| "/".into()),
        program: std::env::current_exe().about("tranche", "its own path is unknown")?,
        systemctl: systemctl(),
        nvml_patience: at.host.discovery.deadline,
    };
    Ok(Control::open(options, host)?)
}

/// systemd's program, if systemd runs here (sd_booted(3)) and has the unit for daemons.
fn systemctl() -> Option<PathBuf> {
    const UNIT: &str = "tranche-mps@.service";
    const DIRECTORIES: [&str; 4] = [
        "/etc/systemd/system",
        "/usr/local/lib/systemd/system",
        "/usr/lib/systemd/system",
        "/lib/systemd/system",
    ];
    let has_unit = DIRECTORIES.iter().any(|dir| Path::new(dir).join(UNIT).is_file());
    if !Path::new("/run/systemd/system").is_dir() || !has_unit {
        return None;
    }
    let programs = ["/usr/bin/systemctl", "/bin/systemctl"].map(PathBuf::from);
    programs.into_iter().find(|program| program.is_file())
}
