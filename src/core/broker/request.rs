//! What a program asks the broker for. docs/broker.md describes the fields.
//!
//! A command is a row of `commands!` and a type with its fields. A program sends the type, and the broker parses a
//! line into a [`Request`]. So a program that only asks contains nothing of the other commands.

mod as_text;
mod claim;
mod container;
mod enter;
mod kubernetes;
mod mig;
mod run;

pub use claim::ClaimRequest;
pub use enter::{EnterRequest, EnterSubject};
pub use kubernetes::{
    DraDevicesRequest, GiveUpRequest, OffersRequest, PolicyAnswer, PolicyRequest, PrepareClaimRequest, ReserveRequest,
    UnprepareClaimRequest,
};
pub use mig::{MigAnswer, MigMakeAnswer, MigMakeRequest, MigRequest};
pub use run::{RunAnswer, RunRequest};

use super::VERSION;
use crate::error::{Error, Kind, Result};
use crate::ledger::ContainerName;
use crate::types::DeviceKey;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt::Display;

/// The fields of one command.
pub trait Command: Serialize {
    /// The command.
    const NAME: &'static str;
}

/// Defines [`Request`], and which type has the fields of each command.
macro_rules! commands {
    ($($(#[$meta:meta])* $name:literal = $command:ident($fields:ty),)+) => {
        /// What a client asks for.
        #[derive(Debug, PartialEq)]
        pub enum Request {
            $($(#[$meta])* $command($fields),)+
        }

        impl Request {
            /// All commands, in the order of docs/broker.md.
            pub const COMMANDS: &'static [&'static str] = &[$($name),+];

            /// Reads the fields of `command`. Unknown fields are ignored, because a client may be newer.
            fn of(command: &str, fields: Value) -> Result<Self> {
                Ok(match command {
                    $($name => Self::$command(serde_json::from_value(fields).map_err(wrong_field)?),)+
                    _ => {
                        return Err(Error::usage(format!("command {command}"), "unknown")
                            .hint(format!("expected one of {}", Self::COMMANDS.join(", "))));
                    }
                })
            }
        }

        $(impl Command for $fields {
            const NAME: &'static str = $name;
        })+
    };
}

commands! {
    /// Make a device ready for the claims that the ledger has on it.
    "prepare" = Prepare(PrepareRequest),
    /// End the MPS clients of a container.
    "drain" = Drain(DrainRequest),
    /// Show the devices that are changed, or start or stop the MPS daemon of one.
    "mps" = Mps(MpsRequest),
    /// A container of a rootless engine takes something.
    "enter" = Enter(EnterRequest),
    /// A container of a rootless engine has ended.
    "leave" = Leave(LeaveRequest),
    /// Reserve shares under a name.
    "claim" = Claim(ClaimRequest),
    /// A program of a user takes something.
    "run" = Run(RunRequest),
    /// Release what the user holds.
    "release" = Release(ReleaseRequest),
    /// What the user holds.
    "list" = List(ListRequest),
    /// What the user holds, after status.json was brought up to date.
    "status" = Status(StatusRequest),
    /// What the kubelet of Kubernetes may allocate.
    "offers" = Offers(OffersRequest),
    /// Reserve what the kubelet allocated to a pod.
    "reserve" = Reserve(ReserveRequest),
    /// Give up what a pod had.
    "give-up" = GiveUp(GiveUpRequest),
    /// Take the policy of the cluster for this node.
    "policy" = Policy(PolicyRequest),
    /// What the driver for dynamic resource allocation may publish.
    "dra-devices" = DraDevices(DraDevicesRequest),
    /// Make the devices of a resource claim ready.
    "prepare-claim" = PrepareClaim(PrepareClaimRequest),
    /// Give up the devices of a resource claim.
    "unprepare-claim" = UnprepareClaim(UnprepareClaimRequest),
    /// Apply layouts of MIG.
    "mig" = Mig(MigRequest),
    /// Make an instance of MIG.
    "mig-make" = MigMake(MigMakeRequest),
}

/// The device that is made ready.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct PrepareRequest {
    /// Its key in the ledger.
    pub device: DeviceKey,
}

/// The container whose MPS clients are ended.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct DrainRequest {
    /// Its name.
    #[serde(deserialize_with = "container::within_limits")]
    pub container: ContainerName,
}

/// What to do with MPS daemons.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "lowercase")]
pub enum MpsRequest {
    /// Start the daemon of a device, and keep it until it is stopped.
    Start {
        /// The device.
        device: DeviceKey,
    },
    /// Stop the daemon of a device.
    Stop {
        /// The device.
        device: DeviceKey,
        /// Also if shares are held: containers may lose the device.
        #[serde(default)]
        force: bool,
    },
    /// Stop the daemon of a device and start it.
    Restart {
        /// The device.
        device: DeviceKey,
    },
    /// Show the devices that are changed.
    Status,
}

/// The container that has ended.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaveRequest {
    /// Its name.
    #[serde(deserialize_with = "container::within_limits")]
    pub container: ContainerName,
}

/// What the user releases.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct ReleaseRequest {
    /// A claim, a share, or a container.
    pub what: String,
    /// Also if a container uses it.
    #[serde(default)]
    pub force: bool,
}

/// A command without fields.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct ListRequest {}

/// A command without fields.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusRequest {}

/// A request as it is sent.
#[derive(Serialize)]
pub(super) struct RequestLine<'a, C> {
    version: u64,
    command: &'static str,
    #[serde(flatten)]
    fields: &'a C,
}

impl<'a, C: Command> RequestLine<'a, C> {
    pub(super) fn of(fields: &'a C) -> Self {
        Self {
            version: VERSION,
            command: C::NAME,
            fields,
        }
    }
}

impl Request {
    /// Parses a line, without its end.
    ///
    /// # Errors
    /// Returns a usage error if the line is not a request that this broker answers.
    pub fn parse(line: &[u8]) -> Result<Self> {
        Self::parse_as(line, VERSION)
    }

    /// As a broker of version `own`.
    fn parse_as(line: &[u8], own: u64) -> Result<Self> {
        let value: Value = serde_json::from_slice(line).map_err(|e| wrong("is not JSON").from_source(e))?;
        let Some(fields) = value.as_object() else {
            return Err(wrong("is not a JSON object"));
        };
        match fields.get("version").and_then(Value::as_u64) {
            Some(version) if speaks(version, own) => {}
            Some(version) => {
                let before = if own > 1 {
                    format!(" and {}", own - 1)
                } else {
                    String::new()
                };
                let what =
                    format!("it speaks version {own}{before} of its protocol, and the request has version {version}");
                let error = Error::failed("broker", what);
                return Err(error.hint("restart the broker, so that it is the installed version"));
            }
            None => return Err(wrong("has no field version with a number")),
        }
        let Some(command) = fields.get("command").and_then(Value::as_str) else {
            return Err(wrong("has no field command with a text"));
        };
        let command = command.to_owned();
        Self::of(&command, value)
    }
}

/// Whether a broker of version `own` answers requests of `version`: its own, and the one before.
fn speaks(version: u64, own: u64) -> bool {
    version >= 1 && (version == own || Some(version) == own.checked_sub(1))
}

fn wrong(what: impl Display) -> Error {
    Error::new(Kind::Usage, "request", what)
}

fn wrong_field(error: serde_json::Error) -> Error {
    wrong("has a wrong field").from_source(error)
}

#[cfg(test)]
mod tests;
