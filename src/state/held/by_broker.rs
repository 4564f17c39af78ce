//! Claims of users other than root, which the broker keeps.

use super::Held;
use super::root_only;
use super::user_wait::UserWait;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;
use tranche_core::broker::{self, BrokerError, Command, SOCKET};
use tranche_core::error::{Error, Result};

/// How long the broker may take: it may have to examine the host first.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether this user's claims are kept by the broker, because the ledger in `state_dir` belongs to another user.
pub fn is_needed(state_dir: &Path) -> bool {
    root_only::check(state_dir).is_err()
}

/// Asks the broker of `state_dir`. Returns what its answer has.
///
/// # Errors
/// Returns the refusal, or how the broker is started if it cannot be reached.
pub fn ask<T: DeserializeOwned>(state_dir: &Path, request: &impl Command) -> Result<T> {
    ask_waiting(state_dir, request, Duration::ZERO)
}

/// As [`ask`], for a request that waits for what others hold.
///
/// # Errors
/// As [`ask`].
pub fn ask_waiting<T: DeserializeOwned>(state_dir: &Path, request: &impl Command, wait: Duration) -> Result<T> {
    match broker::ask(&state_dir.join(SOCKET), request, PATIENCE.saturating_add(wait)) {
        Ok(value) => Ok(value),
        Err(BrokerError::Refused(error)) => Err(error),
        Err(BrokerError::Unreachable(error)) => {
            let what = match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => "does not run",
                _ => "cannot be reached",
            };
            // Root asks it only for what it alone can do, for example with a device that is given by turns.
            let what = match is_needed(state_dir) {
                true => format!("{what}, and it keeps the claims of users other than root"),
                false => format!("{what}, and it alone can do this"),
            };
            Err(Error::failed("broker", what)
                .from_source(error)
                .hint("root starts it: systemctl start tranche-broker.socket, or tranche broker &"))
        }
    }
}

/// What this user holds and waits for, as the broker answers `list` and `status`.
#[derive(Default, Deserialize)]
pub struct OwnClaims {
    /// What the user holds.
    pub claims: Vec<Held>,
    /// What the user waits for.
    #[serde(default)]
    pub waiting: Vec<UserWait>,
}

/// The claims of this user. `request` is one that is answered with them.
///
/// # Errors
/// As [`ask`].
pub fn own(state_dir: &Path, request: &impl Command) -> Result<OwnClaims> {
    ask(state_dir, request)
}
