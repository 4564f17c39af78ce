//! What hooks and runtimes ask the broker for. docs/reference/broker.md describes the fields. What other programs ask
//! for is in the crate `tranche-protocol`, which hooks do not contain.

pub mod as_text;
mod container;
mod enter;
mod first_turn;
mod mig;

pub use enter::{EnterRequest, EnterSubject};
pub use first_turn::{FirstTurnAnswer, FirstTurnRequest, first_turn, first_turn_refused};
pub use mig::{MigMakeAnswer, MigMakeRequest};

use super::VERSION;
use crate::ledger::ContainerName;
use crate::types::DeviceKey;
use serde::{Deserialize, Serialize};

/// The fields of one command.
pub trait Command: Serialize {
    /// The command.
    const NAME: &'static str;
    /// Whether it gives back what somebody holds.
    const GIVES_BACK: bool = false;
}

impl Command for PrepareRequest {
    const NAME: &'static str = "prepare";
}

impl Command for EndClientsRequest {
    const NAME: &'static str = "end-clients";
}

impl Command for EnterRequest {
    const NAME: &'static str = "enter";
}

impl Command for LeaveRequest {
    const NAME: &'static str = "leave";
    const GIVES_BACK: bool = true;
}

impl Command for MigMakeRequest {
    const NAME: &'static str = "mig-make";
}

/// The device that is made ready.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct PrepareRequest {
    /// Its key in the ledger.
    pub device: DeviceKey,
}

/// The container whose MPS clients are ended.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct EndClientsRequest {
    /// Its name.
    #[serde(deserialize_with = "container::within_limits")]
    pub container: ContainerName,
}

/// The container that has ended.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaveRequest {
    /// Its name.
    #[serde(deserialize_with = "container::within_limits")]
    pub container: ContainerName,
}

/// A request as it is sent.
#[derive(Serialize)]
pub struct RequestLine<'a, C> {
    version: u64,
    command: &'static str,
    #[serde(flatten)]
    fields: &'a C,
}

impl<'a, C: Command> RequestLine<'a, C> {
    /// The line of the command that has these fields.
    pub fn of(fields: &'a C) -> Self {
        Self {
            version: VERSION,
            command: C::NAME,
            fields,
        }
    }
}
