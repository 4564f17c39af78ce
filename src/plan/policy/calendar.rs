//! What the policy says about reservations for later.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;
use tranche_core::types::{WaitTime, parsed_type};

/// What is done with those who still hold something when its reserved time begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClearBy {
    /// They are named, and keep it until they end.
    #[default]
    Drain,
    /// Containers of users' own engines and users' programs are ended, and claims that nobody uses are released.
    End,
}

/// The most days ahead that a policy may allow.
const MOST_DAYS: u32 = 366;

/// A time that may be long: a [`WaitTime`], or whole days (`14d`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LongTime(Duration);

impl LongTime {
    /// So many days.
    pub const fn days(days: u32) -> Self {
        Self(Duration::from_secs(days as u64 * 86_400))
    }

    /// The time.
    pub fn get(self) -> Duration {
        self.0
    }
}

parsed_type!(LongTime, parse, "not a time like 12h or 14d, of at most 366 days");
tranche_core::types::serde_as_text!(LongTime);

fn parse(text: &str) -> Option<LongTime> {
    match text.strip_suffix('d') {
        Some(days) => {
            let days = days.parse().ok().filter(|days| *days <= MOST_DAYS);
            days.map(LongTime::days)
        }
        None => text.parse::<WaitTime>().ok().map(|time| LongTime(time.get())),
    }
}

impl fmt::Display for LongTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            seconds if seconds > 0 && seconds.is_multiple_of(86_400) => write!(f, "{}d", seconds / 86_400),
            seconds => WaitTime::seconds(u32::try_from(seconds).unwrap_or(u32::MAX)).fmt(f),
        }
    }
}

/// How devices and shares are reserved for later. The limits of `ahead`, `hours` and `open` are for users, and not for
/// root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    remote = "Self",
    rename = "sharing.calendar",
    rename_all = "camelCase",
    deny_unknown_fields,
    default
)]
pub struct CalendarSettings {
    /// For how long before a reserved time nothing is given that is not known to end in time.
    pub before: WaitTime,
    /// What is done with those who hold it then.
    pub clear: ClearBy,
    /// After what time a reservation is given up that its user does not use.
    pub no_show: WaitTime,
    /// How far ahead a reservation may begin.
    pub ahead: LongTime,
    /// How many hours the reservations of a user may have that are not over.
    pub hours: u32,
    /// How many reservations a user may have that are not over.
    pub open: u32,
    /// For how long reservations of a GPU may follow one another before it is free for others.
    pub longest: WaitTime,
}

impl Default for CalendarSettings {
    fn default() -> Self {
        Self {
            before: WaitTime::seconds(30 * 60),
            clear: ClearBy::Drain,
            no_show: WaitTime::seconds(15 * 60),
            ahead: LongTime::days(14),
            hours: 20,
            open: 3,
            longest: WaitTime::seconds(24 * 3600),
        }
    }
}

impl CalendarSettings {
    /// For how long a GPU is free of reservations after they have followed one another: somebody who waits can be
    /// served in the half hour that is left of it before `before` begins.
    pub fn gap(&self) -> u64 {
        self.before.get().as_secs() + 30 * 60
    }

    fn check(&self) -> Result<(), String> {
        const SHORTEST: Duration = Duration::from_secs(60);
        for (key, value) in [("noShow", self.no_show), ("longest", self.longest)] {
            if value.get() < SHORTEST {
                return Err(format!("{key} is {value}; write at least 1m"));
            }
        }
        if self.before.get() > Duration::from_secs(86_400) {
            return Err(format!("before is {}; write at most 24h", self.before));
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for CalendarSettings {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let settings = Self::deserialize(from)?;
        settings.check().map_err(serde::de::Error::custom)?;
        Ok(settings)
    }
}

impl Serialize for CalendarSettings {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, to)
    }
}
