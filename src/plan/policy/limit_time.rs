//! Times of the rules for users, and whether they were written with a unit.

use std::fmt;
use std::str::FromStr;
use tranche_core::types::WaitTime;

/// A time after which something is done about what a user holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitTime {
    /// The time.
    pub(super) time: WaitTime,
    /// Whether it was written with a unit. Without one, it is in seconds, although somebody who writes `maxHold: 8`
    /// means hours: it ends nobody's work.
    pub(super) has_unit: bool,
}

impl From<WaitTime> for LimitTime {
    fn from(time: WaitTime) -> Self {
        let has_unit = true;
        Self { time, has_unit }
    }
}

impl FromStr for LimitTime {
    type Err = tranche_core::error::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self {
            time: text.parse()?,
            has_unit: !text.bytes().all(|byte| byte.is_ascii_digit()),
        })
    }
}

impl fmt::Display for LimitTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.has_unit, self.time.get().as_secs()) {
            (true, _) => self.time.fmt(f),
            // As it was written: it is read again.
            (false, seconds) => seconds.fmt(f),
        }
    }
}

tranche_core::types::serde_as_text!(LimitTime);
