//! The reservations of a GPU that count at a moment: those whose time has come or is near.

use super::{Calendar, ReservedTime};
use crate::error::{Result, line};
use crate::ledger::clock;
use crate::types::GpuUuid;
use nix::time::{ClockId, clock_gettime};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The file of the ledger with the reservations that their users have used, by number. It ends with the machine: after
/// a reboot, they have the time of `noShow` again.
pub(in crate::ledger) const BEGUN_FILE: &str = "reserved-and-used";

/// Who asks for something.
#[derive(Debug, Clone, Copy)]
pub(in crate::ledger) struct Asker {
    /// The user.
    pub(in crate::ledger) uid: u32,
    /// After how many seconds the user's hold is known to end; `None` where nothing ends it.
    pub(in crate::ledger) ends_within: Option<u64>,
}

/// A reservation whose time has come or is near.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::ledger) struct NearTime {
    pub(in crate::ledger) time: ReservedTime,
    /// For as long as `noShow` says, its user is not known to have used it.
    pub(in crate::ledger) is_unused: bool,
}

/// What is reserved of a GPU now or soon.
#[derive(Debug, Clone, Default)]
pub struct NearTimes {
    pub(in crate::ledger) near: Vec<NearTime>,
    /// Why it is unknown what is reserved. Then nothing is given.
    pub(in crate::ledger) unreadable: Option<String>,
    /// The time that counts, in seconds since 1970.
    pub(in crate::ledger) now: u64,
    /// Who asks; `None` where it is not about somebody, and nothing is kept from anybody.
    pub(in crate::ledger) asker: Option<Asker>,
    /// Those that have been used since this was read.
    pub(in crate::ledger) begun: BTreeSet<u32>,
}

/// Whether the same is reserved. Time alone, and who asks, make no difference.
impl PartialEq for NearTimes {
    fn eq(&self, other: &Self) -> bool {
        (&self.near, &self.unreadable) == (&other.near, &other.unreadable)
    }
}

impl Eq for NearTimes {}

impl NearTimes {
    /// What is reserved of `gpu`, or of all, by `calendar`, as it was read, now. `begun` gives the reservations that
    /// were used.
    pub(in crate::ledger) fn of(
        calendar: Result<Arc<Calendar>>,
        gpu: Option<&GpuUuid>,
        begun: impl FnOnce() -> Result<BTreeSet<u32>>,
    ) -> Result<Self> {
        let uptime = || clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |time| time.tv_sec().unsigned_abs());
        match calendar {
            Ok(calendar) if calendar.times.is_empty() => Ok(Self::default()),
            Ok(calendar) => Self::at(&calendar, gpu, clock(), uptime(), begun),
            Err(error) => Ok(Self {
                unreadable: Some(line(&error)),
                ..Self::default()
            }),
        }
    }

    /// What is reserved of `gpu`, or of all, when the clock says `clock` and the machine has run for `uptime` seconds.
    ///
    /// # Errors
    /// Returns the error of `begun`, which gives the reservations that were used, by number.
    pub fn at(
        calendar: &Calendar,
        gpu: Option<&GpuUuid>,
        clock: u64,
        uptime: u64,
        begun: impl FnOnce() -> Result<BTreeSet<u32>>,
    ) -> Result<Self> {
        let now = calendar.now(clock);
        let is_due = |time: &ReservedTime| now >= time.from.saturating_add(time.no_show) && uptime >= time.no_show;
        let times = calendar.times.iter();
        let near: Vec<_> = times
            .filter(|time| gpu.is_none_or(|gpu| time.device.gpu() == gpu) && time.is_near(now))
            .cloned()
            .collect();
        let used = match near.iter().any(is_due) {
            true => begun()?,
            false => BTreeSet::new(),
        };
        let near = near.into_iter().map(|time| NearTime {
            is_unused: is_due(&time) && !used.contains(&time.id),
            time,
        });
        Ok(Self {
            near: near.collect(),
            now,
            ..Self::default()
        })
    }

    /// Those of `gpu`, where these are of all.
    pub(in crate::ledger) fn of_gpu(&self, gpu: &GpuUuid) -> Self {
        let near = self.near.iter().filter(|near| near.time.device.gpu() == gpu);
        Self {
            near: near.cloned().collect(),
            ..self.clone()
        }
    }

    /// Whether nothing is reserved now or soon.
    pub fn is_empty(&self) -> bool {
        self.near.is_empty()
    }

    /// Those that keep something from `asker`, but for their parts.
    pub(in crate::ledger) fn barring(&self, asker: Asker) -> impl Iterator<Item = &NearTime> + Clone {
        let ends = asker.ends_within.map(|seconds| self.now.saturating_add(seconds));
        let near = self.near.iter();
        near.filter(move |near| near.time.bars(asker.uid, ends, self.now))
    }
}

/// The numbers of reservations in [`BEGUN_FILE`], a line each. What is no number was not written by tranche.
pub(in crate::ledger) fn parse_begun(text: &[u8]) -> BTreeSet<u32> {
    let text = String::from_utf8_lossy(text);
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// The text of [`BEGUN_FILE`].
pub(in crate::ledger) fn begun_text(numbers: &BTreeSet<u32>) -> String {
    numbers.iter().map(|number| format!("{number}\n")).collect()
}
