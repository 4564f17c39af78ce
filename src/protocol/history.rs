//! What is asked of `tranche-web` about the past, over its socket: one line of JSON, and one line as the answer.

use serde::{Deserialize, Serialize};

/// The socket.
pub const HISTORY_SOCKET: &str = "/run/tranche-web/history.sock";

tranche_core::types::words! {
    /// Whom a row of a report is about.
    pub enum ReportBy: "subject of a report" {
        /// A user.
        User = "user",
        /// A user's own group.
        Group = "group",
        /// A device.
        Device = "device",
    }
}
tranche_core::types::serde_as_text!(ReportBy);

/// A question about the last `seconds`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
pub enum HistoryRequest {
    /// What was held, used and waited for.
    Report {
        /// By whom.
        by: ReportBy,
        /// Of how many seconds before now.
        seconds: u64,
    },
    /// Who held what when.
    Timeline {
        /// Of how many seconds before now.
        seconds: u64,
    },
}

/// The answer to a [`HistoryRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HistoryAnswer {
    /// To [`HistoryRequest::Report`].
    Report(Report),
    /// To [`HistoryRequest::Timeline`].
    Timeline(Timeline),
    /// Why there is no answer, in one line.
    Error(String),
}

/// What was held, used and waited for in a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The beginning of the time, in seconds since 1970.
    pub from: u64,
    /// Its end.
    pub to: u64,
    /// Who held most is first.
    pub rows: Vec<ReportRow>,
}

/// A line of a [`Report`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportRow {
    /// The user, the group or the device; `None` for all others together, whose rows the asking user may not see.
    pub name: Option<String>,
    /// For how many seconds it held a device or a part of it, added up over the devices. Two parts of one device at
    /// one time count once.
    pub held_seconds: u64,
    /// In how many of them it worked, as far as somebody looked; `None` if nobody did.
    pub busy_seconds: Option<u64>,
    /// For how many seconds it waited, by when the wait was over.
    pub waited_seconds: u64,
}

/// Who held what in a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// The beginning of the time, in seconds since 1970.
    pub from: u64,
    /// Its end.
    pub to: u64,
    /// By device and part.
    pub lanes: Vec<Lane>,
}

/// What happened to a part of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// The device: the UUID of a GPU, for a MIG device with its instances.
    pub device: String,
    /// `share 3`, `the whole device`; empty for a line that says when the device was out of service.
    pub part: String,
    /// In the order of time.
    pub spans: Vec<Span>,
}

/// A time in which a part was held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// When it began, in seconds since 1970.
    pub from: u64,
    /// When it ended; `None` if it has not.
    pub to: Option<u64>,
    /// Who held it; `None` where the asking user may not know it.
    pub who: Option<String>,
    /// Whether a container or a process used it, and it was not only reserved.
    pub is_used: bool,
    /// Whether it was ended because of a limit of time.
    pub is_limited: bool,
}
