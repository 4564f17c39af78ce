//! What people ask for later times.

use serde::{Deserialize, Serialize};
use tranche_core::ledger::ReservedTime;

/// A part of a device is to be reserved for later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReserveTimeRequest {
    /// What: a device, `any`, or a share.
    pub what: String,
    /// From when on, in seconds since 1970.
    pub from: u64,
    /// Until when.
    pub until: u64,
    /// Why, for people.
    pub reason: Option<String>,
    /// The time zone of the user.
    pub zone: String,
    /// What it adds to UTC at `from` and at `until`, in seconds.
    pub offsets: [i32; 2],
}

/// A reservation is not needed any more.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct CancelTimeRequest {
    /// Its number.
    pub id: u32,
}

/// A command without fields.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct CalendarRequest {}

/// How far a reservation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimeState {
    /// Its time is not near.
    Later,
    /// Its time is so near that nothing is given that is not known to end before.
    Near,
    /// It is its time.
    Now,
    /// Its user has not used it.
    GivenUp,
}

/// A reservation as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalendarEntry {
    /// The reservation.
    pub reserved: ReservedTime,
    /// How far it is.
    pub state: TimeState,
    /// Who holds something of it that is to be free by then, or should be by now.
    pub held_by: Vec<String>,
}

/// What `calendar` is answered with.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CalendarAnswer {
    /// What is reserved and not over, by time.
    pub entries: Vec<CalendarEntry>,
    /// The devices of which something can be reserved, as people call them.
    pub devices: Vec<String>,
    /// The user who asks, by number.
    pub uid: u32,
    /// When the calendar was changed, if the clock is behind that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<u64>,
}
