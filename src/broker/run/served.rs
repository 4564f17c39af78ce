//! Whether what serves a share runs and is set.

use std::fmt::Display;
use std::path::Path;
use std::time::{Duration, Instant};
use tranche_core::broker::{self, BrokerError, PrepareRequest};
use tranche_core::error::{Error, Result};
use tranche_core::mps::check_daemon;
use tranche_core::types::{DeviceKey, HostPath};
use tranche_plan::policy::MpsDaemonOwner;
use tranche_plan::share::{Method, Need, SplitDevice};

/// How long the broker may take to start an MPS daemon.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes sure that the claims that the ledger now has on the device can be served.
///
/// # Errors
/// Returns an error if the MPS daemon of the device does not run, or if the broker refuses or cannot be reached.
pub(super) fn check(split: &SplitDevice, label: &str, state_dir: &HostPath) -> Result<()> {
    let needs = split.needs(state_dir);
    if let Method::Mps(mps) = &split.method
        && mps.daemon == MpsDaemonOwner::External
    {
        let pipe = needs.iter().find_map(|need| match need {
            Need::MpsDaemon { pipe, .. } => Some(pipe),
            _ => None,
        });
        return pipe.map_or(Ok(()), |pipe| check_daemon(pipe.as_path(), label));
    }
    match needs.is_empty() {
        true => Ok(()),
        false => prepare(split, label, state_dir),
    }
}

/// Asks the broker to prepare the device.
fn prepare(split: &SplitDevice, label: &str, state_dir: &HostPath) -> Result<()> {
    let request = PrepareRequest {
        device: split.key.clone(),
    };
    let asked = broker::tell(state_dir.join(broker::SOCKET).as_path(), &request, PATIENCE);
    asked.map_err(|error| refusal(label, error))
}

/// Waits until process `pid`, which holds `share`, has its first turn with the device, at most for `left`, or without
/// an end. `say` gets for whom it waits.
///
/// # Errors
/// Returns who has the device after that time, or that the broker refuses or cannot be reached.
pub(super) fn await_first_turn(
    state_dir: &Path,
    (share, device): (&str, &DeviceKey),
    pid: u32,
    left: Option<Duration>,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let began = Instant::now();
    let waits = |waits_for: &str| say(&format!("{share}: waiting for its first turn: {waits_for}"));
    let waited = broker::first_turn(state_dir, device, pid, left, waits);
    match waited.map_err(|error| refusal(share, error))? {
        None => Ok(()),
        Some(waits_for) => Err(broker::first_turn_refused(share, &waits_for, began.elapsed())),
    }
}

fn refusal(object: impl Display, error: BrokerError) -> Error {
    match error {
        BrokerError::Refused(error) => error,
        BrokerError::Unreachable(error) => Error::failed(object, "is served by the broker, which cannot be reached")
            .from_source(error)
            .hint("start it: systemctl start tranche-broker.socket, or tranche broker &"),
    }
}
