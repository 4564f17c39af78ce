//! A claim on a device that its holders have by turns, before it has the device for the first time.

use super::Command;
use crate::broker::{BrokerError, SOCKET, ask};
use crate::error::Error;
use crate::types::{DeviceKey, WaitTime};
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Waits until the claim of a process has its device.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstTurnRequest {
    /// The device.
    pub device: DeviceKey,
    /// The process that holds the claim, or the init of its container, by the pid namespace of the process that asks.
    pub pid: u32,
    /// How long it is waited for.
    pub wait: WaitTime,
}

impl Command for FirstTurnRequest {
    const NAME: &'static str = "first-turn";
}

/// The answer to [`FirstTurnRequest`].
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstTurnAnswer {
    /// What it waits for still, in words; `null` if the claim has the device.
    pub waits_for: Option<String>,
}

/// How long the broker may take beside the time that is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long it is waited at a time.
const AT_A_TIME: Duration = Duration::from_secs(20);

/// For how long nobody may answer while a broker is started in place of another one.
const BETWEEN_BROKERS: Duration = Duration::from_secs(15);

/// How soon a broker is asked again that does not answer.
const AGAIN: Duration = Duration::from_millis(200);

/// Waits until the claim of process `pid` has its device for the first time, at most for `wait`, or without an end.
/// `say` gets for whom it waits, once. Returns what it waits for after that time; `None` if it has the device.
///
/// # Errors
/// Returns [`BrokerError`].
pub fn first_turn(
    state_dir: &Path,
    device: &DeviceKey,
    pid: u32,
    wait: Option<Duration>,
    mut say: impl FnMut(&str),
) -> Result<Option<String>, BrokerError> {
    let until = wait.map(|wait| Instant::now() + wait);
    let (mut is_first, mut answered) = (true, Instant::now());
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let now = match is_first {
            true => Duration::ZERO,
            false => left.unwrap_or(AT_A_TIME).min(AT_A_TIME),
        };
        // Rounded up, so that the last part of a second is waited for.
        let seconds = now.as_secs() + u64::from(now.subsec_nanos() > 0);
        let request = FirstTurnRequest {
            device: device.clone(),
            pid,
            wait: WaitTime::seconds(u32::try_from(seconds).unwrap_or(u32::MAX)),
        };
        let asked = ask::<FirstTurnAnswer>(&state_dir.join(SOCKET), &request, PATIENCE.saturating_add(now));
        let waits_for = match asked {
            Err(BrokerError::Unreachable(_)) if !is_first && answered.elapsed() < BETWEEN_BROKERS + now => {
                sleep(AGAIN);
                continue;
            }
            asked => asked?.waits_for,
        };
        let Some(waits_for) = waits_for else { return Ok(None) };
        if left.is_some_and(|left| left.is_zero()) {
            return Ok(Some(waits_for));
        }
        if is_first {
            say(&waits_for);
        }
        (is_first, answered) = (false, Instant::now());
    }
}

/// The error of a start that does not wait any longer.
pub fn first_turn_refused(object: impl Display, waits_for: &str, waited: Duration) -> Error {
    let error = Error::failed(object, format!("its first turn has not come: {waits_for}"));
    match waited.as_secs() {
        0 => error,
        waited => error.hint(format!("waited {waited} s for it")),
    }
}
