//! `tranche mps`: the MPS daemons that tranche manages. The broker starts and stops them; these verbs ask it.

use super::out;
use super::sharing::SharingArgs;
use super::table::Table;
use anyhow::Result;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;
use tranche_broker::control::run_daemon;
use tranche_core::broker::{self, BrokerError};
use tranche_core::error::{Error, Kind};
use tranche_core::ledger::utc;
use tranche_core::types::{DeviceKey, DeviceSelector, HostPath};
use tranche_host::examine;
use tranche_plan::host_file::HostFile;
use tranche_protocol::MpsRequest;
use tranche_state::controlled::{ControlledDevice, DaemonState, DaemonStatus};
use tranche_state::held::root_only;

/// How long the broker may take: a daemon that does not start is waited for, and ended.
const PATIENCE: Duration = Duration::from_secs(120);

/// The verbs of `tranche mps`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Verb {
    /// Start the MPS daemon of a device, and keep it although no container uses it
    Start(DeviceArgs),
    /// Stop the MPS daemon of a device, and put the device back as it was
    Stop(StopArgs),
    /// Stop the MPS daemon of a device, and start it with the same limits. Processes that use it lose the device
    Restart(DeviceArgs),
    /// Show the devices that are changed for shares, and their MPS daemons
    Status(StatusArgs),
    /// Become the daemon of a device that the broker is preparing: for the unit tranche-mps@.service and the broker
    /// itself
    #[command(hide = true)]
    Run(RunArgs),
}

#[derive(Debug, clap::Args)]
pub(super) struct DeviceArgs {
    /// The device: 0, 0:1, its UUID or its PCI address
    #[arg(value_name = "DEVICE")]
    device: DeviceSelector,
    #[command(flatten)]
    at: SharingArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct StopArgs {
    /// Stop it although containers hold shares of the device: their processes lose the device
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// Print JSON; docs/reference/claims.md describes the fields
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: super::place::StateArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// The name of the device in the state directory: 0, 0-1
    #[arg(value_name = "NAME")]
    instance: String,
    #[command(flatten)]
    state: super::place::StateArgs,
}

/// Runs the verb.
///
/// # Errors
/// Returns the error of the verb, or the broker's.
pub(super) fn run(verb: &Verb) -> Result<ExitCode> {
    match verb {
        Verb::Start(args) => change(args, |device| MpsRequest::Start { device }),
        Verb::Stop(args) => change(&args.device, |device| MpsRequest::Stop {
            device,
            force: args.force,
        }),
        Verb::Restart(args) => change(args, |device| MpsRequest::Restart { device }),
        Verb::Status(args) => status(args),
        Verb::Run(args) => match run_daemon(HostPath::absolute(&args.state.state_dir)?.as_path(), &args.instance)? {},
    }
}

fn change(args: &DeviceArgs, request: impl FnOnce(DeviceKey) -> MpsRequest) -> Result<ExitCode> {
    let request = request(key(args)?);
    ask::<IgnoredAny>(&args.at.state, &request)?;
    let done = match request {
        MpsRequest::Stop { .. } => "stopped; the device is as it was before",
        MpsRequest::Start { .. } | MpsRequest::Restart { .. } | MpsRequest::Status => "its MPS daemon is running",
    };
    out::note(format_args!("{}: {done}", args.device));
    Ok(ExitCode::SUCCESS)
}

/// The device in the ledger. A GPU may be named by its UUID although the host does not have it any more.
fn key(args: &DeviceArgs) -> Result<DeviceKey> {
    if let DeviceSelector::GpuUuid(uuid) = &args.device {
        return Ok(DeviceKey::whole(uuid.clone()));
    }
    let host = args.at.host.options(&args.at.look);
    let file = HostFile::read(&args.at.state.state_dir).ok().filter(|_| host.is_here());
    let inventory = match file {
        Some(file) => file.inventory,
        None => examine::quietly(&host)?,
    };
    Ok(inventory.catalogue().get(&args.device)?.key())
}

/// Asks the broker of this state directory.
fn ask<T: DeserializeOwned>(state: &super::place::StateArgs, request: &MpsRequest) -> Result<T> {
    root_only::check(&state.state_dir)?;
    match broker::ask(&state.state_dir.join(broker::SOCKET), request, PATIENCE) {
        Ok(answer) => Ok(answer),
        Err(BrokerError::Refused(error)) => Err(error.into()),
        Err(BrokerError::Unreachable(error)) => {
            let what = "the broker, which manages MPS daemons, cannot be reached";
            let error = Error::failed(state.state_dir.display(), what).from_source(error);
            Err(error
                .hint("start it: systemctl start tranche-broker.socket, or tranche broker &")
                .into())
        }
    }
}

/// What the broker says of the devices that are changed.
#[derive(Debug, serde::Deserialize)]
pub(super) struct MpsAnswer {
    pub(super) devices: Vec<ControlledDevice>,
    /// A line for each record that cannot be read: what is changed of its device is unknown.
    #[serde(default)]
    pub(super) problems: Vec<String>,
}

fn status(args: &StatusArgs) -> Result<ExitCode> {
    let MpsAnswer { devices, problems } = ask(&args.state, &MpsRequest::Status)?;
    let shown = json!({"devices": devices, "problems": problems});
    out::either(args.json, &shown, || text(&devices))?;
    problems.iter().for_each(out::note);
    if devices.is_empty() && problems.is_empty() && !args.json {
        out::note("no device is changed for shares");
    }
    let is_wrong = |daemon: &DaemonStatus| {
        use DaemonState::{Failed, Foreign, ServerFailed};
        matches!(daemon.state, Failed | Foreign | ServerFailed)
    };
    let has_wrong_daemon = devices.iter().filter_map(|device| device.daemon.as_ref()).any(is_wrong);
    match has_wrong_daemon || !problems.is_empty() {
        true => Ok(out::code(Kind::Found)),
        false => Ok(ExitCode::SUCCESS),
    }
}

fn text(devices: &[ControlledDevice]) -> String {
    if devices.is_empty() {
        return String::new();
    }
    let mut table = Table::with_header(&["DEVICE", "DAEMON", "PID", "SINCE", "RESTARTS", "MEMORY", "COMPUTE"]);
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let mut lines = String::new();
    for device in devices {
        let daemon = device.daemon.as_ref();
        table.row([
            device.device.clone(),
            or_dash(daemon.and_then(|daemon| Some(serde_json::to_value(daemon.state).ok()?.as_str()?.to_owned()))),
            or_dash(daemon.and_then(|daemon| daemon.pid).map(|pid| pid.to_string())),
            or_dash(daemon.and_then(|daemon| daemon.since).map(utc)),
            or_dash(daemon.map(|daemon| daemon.restarts.to_string())),
            or_dash(
                daemon
                    .and_then(|daemon| daemon.memory_mib)
                    .map(|mib| format!("{mib} MiB")),
            ),
            or_dash(
                daemon
                    .and_then(|daemon| daemon.compute_percent)
                    .map(|percent| format!("{percent}%")),
            ),
        ]);
        for problem in &device.problems {
            lines.push_str(&format!("{}: {}\n", device.device, tranche_core::text::shown(problem)));
        }
        for lost in daemon.iter().flat_map(|daemon| &daemon.lost) {
            let container = tranche_core::text::shown(&lost.container);
            lines.push_str(&format!(
                "{}: container {container} lost the daemon at {}\n",
                device.device,
                utc(lost.at)
            ));
        }
    }
    format!("{}{lines}", table.text())
}
