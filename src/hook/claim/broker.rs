//! What the claim hooks ask the broker: to make a device ready for a claim, and to enter the ledger of root for a
//! container of a rootless engine.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::spawn;
use std::time::Duration;
use tranche_core::broker::{
    self, BrokerError, Command, EnterRequest, EnterSubject, LeaveRequest, PrepareRequest, SOCKET, tell,
};
use tranche_core::call::{ClaimCall, ReleaseCall};
use tranche_core::caller::Callers;
use tranche_core::claims::nobody_waits;
use tranche_core::error::{Error, Result};
use tranche_core::ledger::{ContainerName, STATE_DIR};
use tranche_core::types::{Part, Subject};

/// How long the broker may take to enter a container or to let it leave: less than the ten seconds that an engine gives
/// the hook, so that the hook can report it.
const PATIENCE: Duration = Duration::from_secs(8);

/// How often a hook that waits looks whether somebody still waits for its container.
const LOOK: Duration = Duration::from_millis(200);

/// Waits until the broker has made the device of `call` ready for the claims on it.
pub(super) fn prepare(call: &ClaimCall) -> Result<()> {
    let request = PrepareRequest {
        device: call.device.clone(),
    };
    let what = match call.daemon {
        Some(_) => "its MPS daemon is started by the broker",
        None => "the broker sets what its shares need",
    };
    let patience = Duration::from_secs(u64::from(ClaimCall::PREPARING));
    let state_dir = call.state_dir.as_path();
    refused(send(&request, state_dir, patience), state_dir, &call.label, what)
}

/// Lets the broker enter a container of this user's engine, whose init is `pid`, and whose process will run as `user`
/// of the container.
pub(super) fn enter(call: &ClaimCall, container: ContainerName, pid: u32, user: Option<u32>) -> Result<()> {
    let (subject, size) = match &call.subject {
        Subject::Part(Part::Whole, _) => (EnterSubject::Part(Part::Whole), None),
        Subject::Part(part, size) => (EnterSubject::Part(part.clone()), Some(*size)),
        Subject::Claim(name, size) => (EnterSubject::Claim(name.clone()), *size),
    };
    let request = EnterRequest {
        device: call.device.clone(),
        subject,
        size,
        container,
        pid,
        user,
        wait: call.wait,
    };
    let what = "containers of a user's own engine get shares from the broker";
    let state_dir = call.state_dir.as_path();
    if call.wait.is_zero() {
        return refused(send(&request, state_dir, PATIENCE), state_dir, &call.label, what);
    }
    let patience = PATIENCE.saturating_add(call.wait.get());
    let socket = state_dir.join(SOCKET);
    let asked = while_needed(move || tell(&socket, &request, patience))?;
    refused(asked, state_dir, &call.label, what)
}

/// Waits up to `left` until the container with this init has the device of `call`, which its holders have by turns.
pub(super) fn first_turn(call: &ClaimCall, pid: u32, left: Duration) -> Result<()> {
    let (state_dir, device) = (call.state_dir.as_path().to_owned(), call.device.clone());
    let asked = while_needed(move || broker::first_turn(&state_dir, &device, pid, Some(left), |_| ()))?;
    let waits_for = match asked {
        Ok(None) => return Ok(()),
        Ok(Some(waits_for)) => waits_for,
        Err(error) => {
            let what = "the broker gives its device by turns";
            return refused(Err(error), call.state_dir.as_path(), &call.label, what);
        }
    };
    Err(broker::first_turn_refused(&call.label, &waits_for, call.wait.get()))
}

/// Lets `ask` wait in a thread, as long as somebody waits for the container. It ends with this process, which closes
/// the connection, and so ends the wait.
fn while_needed<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    // The low-level runtime, and the engine's program that started it.
    let callers = Callers::nearest(2);
    let (sender, answer) = channel();
    spawn(move || {
        // Nobody listens any more if nobody waits for the container.
        let _ = sender.send(ask());
    });
    loop {
        match answer.recv_timeout(LOOK) {
            Ok(asked) => return Ok(asked),
            Err(RecvTimeoutError::Timeout) if !callers.has_ended() => {}
            Err(_) => return Err(nobody_waits()),
        }
    }
}

/// Lets the broker release what a container of this user's engine holds. Without a broker's socket it holds nothing.
pub(super) fn leave(call: &ReleaseCall, container: ContainerName) -> Result<()> {
    let state_dir = call.state_dir.as_path();
    match send(&LeaveRequest { container }, state_dir, PATIENCE) {
        Err(BrokerError::Unreachable(error)) if error.kind() == ErrorKind::NotFound => Ok(()),
        asked => refused(
            asked,
            state_dir,
            "shares",
            "containers of a user's own engine return them to the broker",
        ),
    }
}

fn send(request: &impl Command, state_dir: &Path, patience: Duration) -> Result<(), BrokerError> {
    tell(&state_dir.join(SOCKET), request, patience)
}

/// The error of a request. `what` says what the broker is needed for.
fn refused(asked: Result<(), BrokerError>, state_dir: &Path, object: &str, what: &str) -> Result<()> {
    match asked {
        Ok(()) => Ok(()),
        Err(BrokerError::Refused(error)) => Err(error),
        Err(BrokerError::Unreachable(error)) => {
            let start = match state_dir == Path::new(STATE_DIR) {
                true => "start it: systemctl start tranche-broker.socket, or tranche broker &".to_owned(),
                false => format!("start it: tranche broker --state-dir {} &", state_dir.display()),
            };
            Err(Error::failed(object, format!("{what}, which {}", why(&error))).hint(start))
        }
    }
}

fn why(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused => "does not run".to_owned(),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "did not answer in time".to_owned(),
        _ => format!("cannot be reached ({error})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_broker_the_line_says_how_to_start_it() {
        let unreachable = |kind: ErrorKind| Err(BrokerError::Unreachable(kind.into()));
        let line = |kind, state_dir: &str| {
            let what = "its MPS daemon is started by the broker";
            refused(unreachable(kind), Path::new(state_dir), "gpu 0", what)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            line(ErrorKind::NotFound, STATE_DIR),
            "gpu 0: its MPS daemon is started by the broker, which does not run; start it: systemctl start \
             tranche-broker.socket, or tranche broker &"
        );
        let elsewhere = line(ErrorKind::ConnectionRefused, "/srv/state");
        assert!(elsewhere.ends_with("which does not run; start it: tranche broker --state-dir /srv/state &"));
        assert!(line(ErrorKind::WouldBlock, STATE_DIR).contains("which did not answer in time;"));
        assert!(line(ErrorKind::PermissionDenied, STATE_DIR).contains("cannot be reached (permission denied);"));
    }
}
