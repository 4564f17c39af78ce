//! What `tranche status --json` prints.

use super::messages::{Said, said};
use super::{DaemonRow, Deviation, DeviceStatus, DeviceUsage, HostFileRow, Observed, OutageRow, WaiterRow};
use serde::Serialize;
use tranche_bench::kept::MeasuredHere;
use tranche_core::error::{Error, line};
use tranche_core::ledger::Claim;
use tranche_core::messages::Kept;
use tranche_state::held::Held;
use tranche_state::held::user_wait::UserWait;

/// The state at one moment. docs/reference/claims.md documents the fields.
#[derive(Debug, Serialize)]
pub struct Status<'o> {
    /// Devices that are handed out with a claim.
    pub devices: &'o [DeviceStatus],
    /// What is held.
    pub claims: &'o [Held],
    /// What NVML says; `null` if it was not asked.
    pub gpus: Option<&'o [DeviceUsage]>,
    /// Starts that wait, in the order in which they are served.
    pub waiters: &'o [WaiterRow],
    /// Requests of users that wait in the broker, in the order in which they are served after those.
    pub user_waits: &'o [UserWait],
    /// The devices that are out of service, or will be.
    pub out_of_service: &'o [OutageRow],
    /// The MPS daemons of the broker.
    pub daemons: &'o [DaemonRow],
    /// The devices of which a guarantee was measured here and did not hold.
    pub not_held: &'o [MeasuredHere],
    /// Whether host.json describes the host.
    pub host_file: &'o HostFileRow,
    /// What differs from the expected state.
    pub deviations: &'o [Deviation],
    /// The last messages of hooks.
    pub messages: Vec<Said<'o>>,
    /// What could not be read, and so is missing above.
    pub problems: Vec<String>,
    /// When the broker wrote what is above, in seconds since 1970; `null` if it was read from the ledger.
    pub written: Option<u64>,
    /// Whether the ledger could be read completely.
    #[serde(skip)]
    pub is_ledger_readable: bool,
}

impl<'o> Status<'o> {
    /// What was observed, with the messages of hooks.
    pub fn of(observed: &'o Observed, kept: &'o Kept) -> Self {
        let claims: Vec<&Claim> = observed.books.claims().collect();
        Self {
            devices: &observed.devices,
            claims: &observed.claims,
            gpus: observed.gpus.as_deref(),
            waiters: &observed.waiters,
            user_waits: &observed.user_waits,
            out_of_service: &observed.out_of_service,
            daemons: &observed.daemons,
            not_held: &observed.not_held,
            host_file: &observed.host_file,
            deviations: &observed.deviations,
            // What was read to name the containers that hold something is not read again.
            messages: said(&kept.messages, &claims, &mut observed.view.containers.clone()),
            problems: problems(observed, kept).map(|error| line(error)).collect(),
            written: observed.written,
            is_ledger_readable: observed.sees_ledger && observed.books.damaged.is_empty(),
        }
    }
}

/// What could not be read, and so is missing.
pub fn problems<'o>(observed: &'o Observed, kept: &'o Kept) -> impl Iterator<Item = &'o Error> {
    observed.problems().chain(&kept.damaged)
}
