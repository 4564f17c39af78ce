//! What programs ask the broker for and what it answers, except what hooks ask for: the command line, the kubelet's
//! plugins and the broker itself contain it, hooks do not. docs/reference/broker.md describes the fields.
//!
//! A command is a type with its fields and its name, and a row of `commands!`. A program sends the type, and the broker
//! parses a line into a [`Request`].

mod calendar;
mod claim;
mod dra;
mod history;
mod kubernetes;
mod mig;
mod mps;
mod offer;
mod own;
mod placement;
mod run;
mod turns;

#[cfg(fuzzing)]
pub mod fuzzing;

pub use calendar::{CalendarAnswer, CalendarEntry, CalendarRequest, CancelTimeRequest, ReserveTimeRequest, TimeState};
pub use claim::ClaimRequest;
pub use dra::{
    AllocatedDevice, ClaimSharing, DraDevice, DraDevices, DraDivided, DraEngines, DraGpu, DraHeld, DraInstance,
    DraKind, DraMig, DraParts, DraShare, GivenDevice, PreparedClaim, since_boot,
};
pub use history::{HISTORY_SOCKET, HistoryAnswer, HistoryRequest, Lane, Report, ReportBy, ReportRow, Span, Timeline};
pub use kubernetes::{
    DraDevicesRequest, GiveUpRequest, OffersRequest, PolicyAnswer, PolicyRequest, PrepareClaimRequest, ReserveRequest,
    UnprepareClaimRequest,
};
pub use mig::{MigAnswer, MigRequest, MigRestoreAnswer, MigRestoreRequest, PolicyCheck};
pub use mps::MpsRequest;
pub use offer::{Offer, OfferedParts, Offers, PodReservation, Taken};
pub use own::{ListRequest, ReleaseRequest, StatusRequest};
pub use placement::PodPlacement;
pub use run::{RunAnswer, RunRequest};
pub use turns::TurnRequest;

use serde_json::Value;
use std::fmt::Display;
use tranche_core::broker::{
    Command, EndClientsRequest, EnterRequest, FirstTurnRequest, LeaveRequest, MigMakeRequest, PrepareRequest, VERSION,
};
use tranche_core::error::{Error, Kind, Result};

/// Defines [`Request`], and which type has the fields of each command.
macro_rules! commands {
    ($($(#[$meta:meta])* $command:ident($fields:ty),)+) => {
        /// What a client asks for.
        #[derive(Debug, PartialEq)]
        pub enum Request {
            $($(#[$meta])* $command($fields),)+
        }

        impl Request {
            /// All commands, in the order of docs/reference/broker.md.
            pub const COMMANDS: &'static [&'static str] = &[$(<$fields as Command>::NAME),+];

            /// Reads the fields of `command`. Unknown fields are ignored, because a client may be newer.
            fn of(command: &str, fields: Value) -> Result<Self> {
                Ok(match command {
                    $(<$fields as Command>::NAME => Self::$command(serde_json::from_value(fields).map_err(wrong_field)?),)+
                    _ => {
                        return Err(Error::usage(format!("command {command}"), "unknown")
                            .hint(format!("expected one of {}", Self::COMMANDS.join(", "))));
                    }
                })
            }
        }

    };
}

commands! {
    /// Make a device ready for the claims that the ledger has on it.
    Prepare(PrepareRequest),
    /// End the MPS clients of a container.
    EndClients(EndClientsRequest),
    /// Show the devices that are changed, or start or stop the MPS daemon of one.
    Mps(MpsRequest),
    /// A container of a rootless engine takes something.
    Enter(EnterRequest),
    /// A container of a rootless engine has ended.
    Leave(LeaveRequest),
    /// Reserve shares under a name.
    Claim(ClaimRequest),
    /// A program of a user takes something.
    Run(RunRequest),
    /// Release what the user holds.
    Release(ReleaseRequest),
    /// Suspend the work of what the user holds by turns, or resume it.
    Turn(TurnRequest),
    /// Wait until a claim of the user has its device by turns.
    FirstTurn(FirstTurnRequest),
    /// What the user holds.
    List(ListRequest),
    /// What the user holds, after status.json was brought up to date.
    Status(StatusRequest),
    /// Reserve something for later.
    ReserveTime(ReserveTimeRequest),
    /// Give up what is reserved for later.
    CancelTime(CancelTimeRequest),
    /// What is reserved for later.
    Calendar(CalendarRequest),
    /// What the kubelet of Kubernetes may allocate.
    Offers(OffersRequest),
    /// Reserve what the kubelet allocated to a pod.
    Reserve(ReserveRequest),
    /// Give up what a pod had.
    GiveUp(GiveUpRequest),
    /// Take the policy of the cluster for this node.
    Policy(PolicyRequest),
    /// What the driver for dynamic resource allocation may publish.
    DraDevices(DraDevicesRequest),
    /// Make the devices of a resource claim ready.
    PrepareClaim(PrepareClaimRequest),
    /// Give up the devices of a resource claim.
    UnprepareClaim(UnprepareClaimRequest),
    /// Apply layouts of MIG.
    Mig(MigRequest),
    /// Make the layouts that GPUs are to have at boot.
    MigRestore(MigRestoreRequest),
    /// Make an instance of MIG.
    MigMake(MigMakeRequest),
}

/// Says which command has its fields in which type.
macro_rules! named {
    ($($name:literal = $fields:ty,)+) => {
        $(impl Command for $fields {
            const NAME: &'static str = $name;
        })+
    };
}

impl Command for ReleaseRequest {
    const NAME: &'static str = "release";
    const GIVES_BACK: bool = true;
}

impl Command for CancelTimeRequest {
    const NAME: &'static str = "cancel-time";
    const GIVES_BACK: bool = true;
}

named! {
    "mps" = MpsRequest,
    "claim" = ClaimRequest,
    "run" = RunRequest,
    "turn" = TurnRequest,
    "list" = ListRequest,
    "status" = StatusRequest,
    "reserve-time" = ReserveTimeRequest,
    "calendar" = CalendarRequest,
    "offers" = OffersRequest,
    "reserve" = ReserveRequest,
    "give-up" = GiveUpRequest,
    "policy" = PolicyRequest,
    "dra-devices" = DraDevicesRequest,
    "prepare-claim" = PrepareClaimRequest,
    "unprepare-claim" = UnprepareClaimRequest,
    "mig" = MigRequest,
    "mig-restore" = MigRestoreRequest,
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
