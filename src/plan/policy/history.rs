//! What the policy says about the history.

use super::LongTime;
use std::fmt;
use tranche_core::types::parsed_type;

/// For how long it is recorded who held what: a time like `90d`, or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryTime(Option<LongTime>);

impl HistoryTime {
    /// The time; `None`: nothing is recorded.
    pub fn get(self) -> Option<LongTime> {
        self.0
    }

    /// Whether the policy does not say another time.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for HistoryTime {
    fn default() -> Self {
        Self(Some(LongTime::days(90)))
    }
}

parsed_type!(
    HistoryTime,
    parse,
    "not off, nor a time like 12h or 90d, of at most 366 days"
);
tranche_core::types::serde_as_text!(HistoryTime);

fn parse(text: &str) -> Option<HistoryTime> {
    match text {
        "off" => Some(HistoryTime(None)),
        time => time.parse().ok().map(|time| HistoryTime(Some(time))),
    }
}

impl fmt::Display for HistoryTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(time) => time.fmt(f),
            None => f.write_str("off"),
        }
    }
}
