//! Claims of users other than root, which the broker keeps.

use super::root_only;
use crate::broker::{self, BrokerError, SOCKET, VERSION};
use crate::claims::Held;
use crate::error::{Context, Error, Result};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// How long the broker may take: it may have to examine the host first.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether this user's claims are kept by the broker, because the ledger in `state_dir` belongs to another user.
pub fn is_needed(state_dir: &Path) -> bool {
    root_only::check(state_dir).is_err()
}

/// Asks the broker of `state_dir` for `command` with `fields`. Returns what its answer has.
///
/// # Errors
/// Returns the refusal, or how the broker is started if it cannot be reached.
pub fn ask(state_dir: &Path, command: &str, mut fields: Value) -> Result<Value> {
    fields["version"] = json!(VERSION);
    fields["command"] = json!(command);
    match broker::ask(&state_dir.join(SOCKET), &fields, PATIENCE) {
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

/// The claims of this user.
///
/// # Errors
/// As [`ask`].
pub fn own(state_dir: &Path, command: &str) -> Result<Vec<Held>> {
    held(ask(state_dir, command, json!({}))?["claims"].take())
}

/// Claims in an answer.
///
/// # Errors
/// Returns an error if they have another form.
pub fn held<T: serde::de::DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).about("broker", "its answer is not one that this version understands")
}
