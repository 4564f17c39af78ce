//! Claims of users other than root, which the broker keeps.

use super::Held;
use super::root_only;
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
    match broker::ask(&state_dir.join(SOCKET), request, PATIENCE) {
        Ok(value) => Ok(value),
        Err(BrokerError::Refused(error)) => Err(error),
        Err(BrokerError::Unreachable(error)) => {
            let what = match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => "does not run",
                _ => "cannot be reached",
            };
            let what = format!("{what}, and it keeps the claims of users other than root");
            Err(Error::failed("broker", what)
                .from_source(error)
                .hint("root starts it: systemctl start tranche-broker.socket, or tranche broker &"))
        }
    }
}

/// The claims of this user, as the broker answers `list` and `status`.
#[derive(Deserialize)]
struct OwnClaims {
    claims: Vec<Held>,
}

/// The claims of this user. `request` is one that is answered with them.
///
/// # Errors
/// As [`ask`].
pub fn own(state_dir: &Path, request: &impl Command) -> Result<Vec<Held>> {
    ask::<OwnClaims>(state_dir, request).map(|own| own.claims)
}
