//! Devices that tranche changed for shares: MPS daemons, compute modes, lengths of turns.

use crate::mps::MpsAnswer;
use crate::out;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tranche_broker::control::{Control, ControlOptions, MachineControl};
use tranche_broker::facts::HostNow;
use tranche_broker::serve::Socket;
use tranche_core::broker::{self, BrokerError};
use tranche_core::error::{Error, Kind, Result};
use tranche_core::types::DeviceKey;
use tranche_protocol::MpsRequest;
use tranche_state::controlled::ControlledDevice;
use tranche_state::planning::PlanOptions;

/// How long the broker may take for one device: a daemon gets a minute to end.
const PATIENCE: Duration = Duration::from_secs(120);

/// Puts the devices back as they were, and returns a line for each that cannot be, such as one whose shares containers
/// hold.
///
/// # Errors
/// Returns an error if it is unknown which devices are changed.
pub(super) fn put_back(at: &PlanOptions, dry_run: bool) -> Result<Vec<Error>> {
    let state_dir = at.state_dir.as_path();
    let socket = state_dir.join(broker::SOCKET);
    match broker::ask(&socket, &MpsRequest::Status, PATIENCE) {
        Ok(MpsAnswer { devices, problems }) => {
            let remaining = each(&devices, dry_run, |key| {
                let stop = MpsRequest::Stop {
                    device: key.clone(),
                    force: false,
                };
                match broker::tell(&socket, &stop, PATIENCE) {
                    Ok(()) => Ok(()),
                    Err(BrokerError::Refused(error)) => Err(error),
                    Err(BrokerError::Unreachable(error)) => {
                        Err(Error::failed(socket.display(), "the broker does not answer").from_source(error))
                    }
                }
            });
            Ok(with_unknown(remaining, &problems))
        }
        Err(BrokerError::Refused(error)) => Err(error),
        // Only the broker changes devices, and it leaves a journal of each.
        Err(BrokerError::Unreachable(_)) if !has_journal(state_dir) => Ok(Vec::new()),
        Err(BrokerError::Unreachable(_)) => {
            // In the place of the broker, so that no other one starts meanwhile.
            let _place = Socket::open(state_dir)?;
            let host = Arc::new(HostNow::new(at.clone()));
            let control = Control::open(ControlOptions::of(at)?, host)?;
            let remaining = each(&control.devices(), dry_run, |key| control.stop(key, false));
            Ok(with_unknown(remaining, &control.unreadable()))
        }
    }
}

/// `remaining` and the devices whose records cannot be read: what was changed of them is unknown, and they are not put
/// back.
fn with_unknown(mut remaining: Vec<Error>, problems: &[String]) -> Vec<Error> {
    remaining.extend(problems.iter().map(|problem| {
        let what = format!("one of them may still be changed for shares: {problem}");
        Error::new(Kind::Found, "devices", what)
    }));
    remaining
}

/// Whether a device is changed: `control/NAME.json` in the state directory. If that cannot be listed, one may be.
fn has_journal(state_dir: &Path) -> bool {
    let is_journal = |path: &Path| path.extension().is_some_and(|extension| extension == "json");
    match std::fs::read_dir(state_dir.join("control")) {
        Ok(mut files) => files.any(|file| file.is_ok_and(|file| is_journal(&file.path()))),
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// Stops each device by `stop`; returns what remains.
fn each(devices: &[ControlledDevice], dry_run: bool, stop: impl Fn(&DeviceKey) -> Result<()>) -> Vec<Error> {
    let mut remaining = Vec::new();
    for device in devices {
        if dry_run {
            out::note(format_args!(
                "{}: would be put back as it was, unless it is in use",
                device.device
            ));
            continue;
        }
        match stop(&device.key) {
            Ok(()) => out::note(format_args!("{}: put back as it was", device.device)),
            Err(error) => {
                let what = "is still changed for shares";
                remaining.push(Error::new(Kind::Found, &device.device, what).from_source(error));
            }
        }
    }
    remaining
}
