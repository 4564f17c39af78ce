//! What is reserved for later: who is to have which part of a device from when until when.
//!
//! The calendar is one file, which survives a reboot. It is read under the lock of the ledger by everybody who gives
//! something, so a start needs no broker for it. A missing file costs one system call.
//!
//! Times are seconds since 1970, so that neither a time zone nor daylight saving changes when a reservation begins.
//! The zone in which it was made, and the offset from UTC, are kept for people.

use super::claim::meet;
use super::directory::{kept_dir, read_public};
use super::utc;
use crate::error::{Error, Result};
use crate::sealed;
use crate::text::shown;
use crate::types::{DeviceKey, HeldPart};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::fmt;
use std::path::{Path, PathBuf};

mod near;
mod part;
pub(super) mod remembered;

pub use near::NearTimes;
pub(super) use near::{Asker, BEGUN_FILE, NearTime, begun_text, parse_begun};

/// The file of the calendar, in the directory for what outlives a boot.
pub const CALENDAR_FILE: &str = "calendar.json";

/// The version of its form. Fields are added without a new version.
const VERSION: u32 = 1;

/// The largest file that is read.
const MOST_BYTES: u64 = 512 << 10;

/// The most reservations that it may have: with the longest reasons, they fit into the largest file.
pub const MOST_RESERVED: usize = 512;

/// Seconds for which a reservation stays in the file when it is over: a clock that is wrong by hours loses nothing.
const KEPT_FOR: u64 = 86_400;

/// A part of a device that is reserved for somebody, for a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedTime {
    /// Its number, which no other one gets.
    pub id: u32,
    /// For whom: the user, by number.
    pub uid: u32,
    /// The name of the user, for people.
    pub who: String,
    /// The device.
    pub device: DeviceKey,
    /// What of it.
    #[serde(with = "part", default = "part::whole", skip_serializing_if = "part::is_whole")]
    pub part: HeldPart,
    /// What people call it: `gpu 2`, `gpu 0 share 3`.
    pub label: String,
    /// From when on, in seconds since 1970.
    pub from: u64,
    /// Until when.
    pub until: u64,
    /// For how many seconds before `from` nothing is given of it that may last longer.
    pub before: u64,
    /// After how many seconds without a claim of its user it is given up.
    pub no_show: u64,
    /// When it was made.
    pub made: u64,
    /// The time zone in which it was made: `Europe/Berlin`.
    pub zone: String,
    /// What that zone adds to UTC at `from` and at `until`, in seconds.
    pub offsets: [i32; 2],
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// All that is reserved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Calendar {
    version: u32,
    /// The number of the next reservation.
    next: u32,
    /// When it was changed last, by the clock of then.
    changed: u64,
    /// The reservations, in the order of their numbers.
    pub times: Vec<ReservedTime>,
}

impl fmt::Display for ReservedTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = match self.uid {
            0 => "root".to_owned(),
            uid => format!("{} (uid {uid})", shown(&self.who)),
        };
        let [from, until] = self.wall_clock();
        write!(
            f,
            "reserved for {who} from {from} until {until}, reservation {}",
            self.id
        )?;
        match &self.reason {
            Some(reason) => write!(f, " ({})", shown(reason)),
            None => Ok(()),
        }
    }
}

impl ReservedTime {
    /// Its begin and its end by the clock of its zone: `2026-12-01 14:00` and `2026-12-01 16:00 +01:00`. A change of
    /// the offset in between is seen in both.
    pub fn wall_clock(&self) -> [String; 2] {
        let [at_begin, at_end] = self.offsets;
        let local = |time: u64, offset: i32| {
            let text = utc(time.saturating_add_signed(offset.into()));
            text.get(..16).unwrap_or_default().to_owned()
        };
        let offset = |seconds: i32| {
            let sign = if seconds < 0 { '-' } else { '+' };
            let minutes = seconds.unsigned_abs() / 60;
            format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
        };
        let mut from = local(self.from, at_begin);
        if at_begin != at_end {
            from = format!("{from} {}", offset(at_begin));
        }
        let until = local(self.until, at_end);
        [from, format!("{until} {}", offset(at_end))]
    }

    /// Whether its time has come at `now`, or is as near as `before` says.
    pub fn is_near(&self, now: u64) -> bool {
        now < self.until && now >= self.from.saturating_sub(self.before)
    }

    /// Whether both are at one time.
    pub fn is_at_the_time_of(&self, from: u64, until: u64) -> bool {
        self.from < until && from < self.until
    }

    /// Whether its part and `part` of `device` cannot be held at once, whatever their size.
    pub fn overlaps(&self, device: &DeviceKey, part: &HeldPart) -> bool {
        meet((&self.device, &self.part), (device, part))
    }

    /// Whether all of `part` of `device` is reserved by it.
    pub fn covers(&self, device: &DeviceKey, part: &HeldPart) -> bool {
        let is_on = self.device == *device || self.device.is_whole() && self.device.gpu() == device.gpu();
        match (&self.part, part) {
            (HeldPart::Whole, _) => is_on,
            (HeldPart::Shares(own), HeldPart::Shares(asked)) => {
                self.device == *device && asked.iter().all(|share| own.contains(share))
            }
            (HeldPart::Shares(_), HeldPart::Whole) => false,
        }
    }

    /// Whether nothing that it overlaps is given at `now` to `asker`, who is known to end at `ends`.
    fn bars(&self, asker: u32, ends: Option<u64>, now: u64) -> bool {
        asker != self.uid && self.is_near(now) && ends.is_none_or(|ends| ends > self.from)
    }
}

impl Calendar {
    /// The calendar of the machine whose ledger is in `state_dir`; an empty one if the file does not exist.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is damaged or was written by a newer tranche.
    pub fn read(state_dir: &Path) -> Result<Self> {
        match read_public(&kept_dir(state_dir), CALENDAR_FILE, MOST_BYTES)? {
            Some(bytes) => Self::parse(&bytes, &Self::file(state_dir)),
            None => Ok(Self::default()),
        }
    }

    fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        // The times are parsed once it is known that their form is.
        #[derive(Deserialize)]
        struct File<'t> {
            version: u32,
            #[serde(default)]
            next: u32,
            #[serde(default)]
            changed: u64,
            #[serde(borrow)]
            times: Option<&'t RawValue>,
        }
        let unusable = |what: &str| {
            Error::failed(path.display(), what).hint("tranche reserve cancel all writes it anew, without a reservation")
        };
        let damaged = || unusable("is damaged");
        let text = std::str::from_utf8(bytes).map_err(|error| damaged().from_source(error))?;
        let text = sealed::open(text).ok_or_else(damaged)?;
        let file: File<'_> = serde_json::from_str(&text).map_err(|error| damaged().from_source(error))?;
        if file.version != VERSION {
            return Err(unusable("was written by a newer tranche"));
        }
        let times = file.times.ok_or_else(damaged)?.get();
        Ok(Self {
            version: file.version,
            next: file.next,
            changed: file.changed,
            times: serde_json::from_str(times).map_err(|error| damaged().from_source(error))?,
        })
    }

    /// The file, for the machine whose ledger is in `state_dir`.
    pub fn file(state_dir: &Path) -> PathBuf {
        kept_dir(state_dir).join(CALENDAR_FILE)
    }

    /// The text of the file, after a change at `now`. What has been over for a day is left out.
    ///
    /// # Errors
    /// Returns an error if it cannot be written as JSON.
    pub fn text(&mut self, now: u64) -> serde_json::Result<String> {
        self.version = VERSION;
        self.changed = now;
        self.times.retain(|time| time.until.saturating_add(KEPT_FOR) > now);
        serde_json::to_string(self).map(|text| format!("{}\n", sealed::seal(&text)))
    }

    /// Adds a reservation under the next number. Returns it.
    pub fn add(&mut self, time: ReservedTime) -> ReservedTime {
        self.next = self.next.saturating_add(1);
        let time = ReservedTime { id: self.next, ..time };
        self.times.push(time.clone());
        time
    }

    /// The time that counts where the clock says `clock`. A clock that is behind the last change is not set yet, as
    /// after a boot of a machine without a battery: then it is at least the time of that change.
    pub fn now(&self, clock: u64) -> u64 {
        clock.max(self.changed)
    }

    /// When it was changed last, if the clock, which says `clock`, is behind that by more than a minute.
    pub fn is_behind(&self, clock: u64) -> Option<u64> {
        (clock.saturating_add(60) < self.changed).then_some(self.changed)
    }
}

#[cfg(test)]
mod tests;
