//! What may be reserved for later: a pure function of what is reserved, the policy and the time.
//!
//! The rules, which docs/explanation/waiting.md states:
//!
//! - C1: At no time are two reservations of parts that cannot be held at once, nor more than a device has.
//! - C2: Reservations of one GPU that follow one another, with less than [`CalendarSettings::gap`] between them, are
//!   together no longer than `longest`. So the first request that waits for the GPU is passed by reservations for no
//!   longer.
//! - C3: A user has at most `open` reservations that are not over, of `hours` hours together, that begin at most
//!   `ahead` from now. Root has no such limit.
//!
//! How reservations bind starts (C4, C5) is in [`tranche_core::ledger::calendar`].

mod place;

pub use place::{Wanted, place};

use crate::policy::CalendarSettings;
use tranche_core::error::{Error, Result};
use tranche_core::ledger::{ReservedTime, fits, utc};
use tranche_core::text::counted;
use tranche_core::types::{Bounds, DeviceKey, HeldPart, WaitTime};

/// The shortest reservation, in seconds.
const SHORTEST: u64 = 60;

/// A time that is asked for, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// When it begins.
    pub from: u64,
    /// When it ends.
    pub until: u64,
}

/// Why a part of a device cannot be reserved for a time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFree {
    /// It cannot be held at once with what this reservation has.
    #[error("{0}")]
    Reserved(Box<ReservedTime>),
    /// What is reserved then is, with it, more than the device has.
    #[error("what is reserved from {} on, with it, is more than the device has", utc(*at))]
    TooMuch {
        /// From when on, in seconds since 1970.
        at: u64,
    },
    /// Reservations would follow one another for too long.
    #[error(
        "reservations of this GPU would follow one another from {} to {}, and {most} is the most, so that others who \
         wait are served",
        utc(*from),
        utc(*until)
    )]
    TooLong {
        /// From when on, in seconds since 1970.
        from: u64,
        /// Until when.
        until: u64,
        /// `longest` of the policy.
        most: WaitTime,
    },
}

/// Whether `part` of `device`, of which `bounds` may be promised, can be reserved for `period` beside `times` (C1 and
/// C2).
///
/// # Errors
/// Returns what is in the way.
pub fn is_free(
    times: &[ReservedTime],
    settings: &CalendarSettings,
    (device, part, bounds): (&DeviceKey, &HeldPart, Bounds),
    period: Period,
) -> Result<(), NotFree> {
    let Period { from, until } = period;
    let of_gpu = || times.iter().filter(|time| time.device.gpu() == device.gpu());
    let beside = || of_gpu().filter(|time| time.is_at_the_time_of(from, until));
    if let Some(taken) = beside().find(|time| time.overlaps(device, part)) {
        return Err(NotFree::Reserved(Box::new(taken.clone())));
    }
    // What is reserved at a moment changes where a reservation begins, and only grows there.
    for at in beside().map(|time| time.from.max(from)).chain([from]) {
        let then = beside().filter(|time| time.from <= at && at < time.until);
        if fits(device, part, bounds, then.map(|time| (&time.device, &time.part))).is_err() {
            return Err(NotFree::TooMuch { at });
        }
    }
    let (mut first, mut last) = (from, until);
    // Each round takes in at least one more, or is the last.
    loop {
        let near =
            |time: &&ReservedTime| time.is_at_the_time_of(first.saturating_sub(settings.gap()), last + settings.gap());
        let begin = of_gpu().filter(near).map(|time| time.from).fold(first, u64::min);
        let end = of_gpu().filter(near).map(|time| time.until).fold(last, u64::max);
        if (begin, end) == (first, last) {
            break;
        }
        (first, last) = (begin, end);
    }
    match last - first > settings.longest.get().as_secs() {
        true => Err(NotFree::TooLong {
            from: first,
            until: last,
            most: settings.longest,
        }),
        false => Ok(()),
    }
}

/// Whether `uid` may reserve `period` at `now`, with what the user has reserved of `times` (C3).
///
/// # Errors
/// Returns the limit, or why it is not a time that can be reserved.
pub fn check_period(
    times: &[ReservedTime],
    settings: &CalendarSettings,
    uid: u32,
    period: Period,
    now: u64,
) -> Result<()> {
    let Period { from, until } = period;
    let wrong = |what: String| Err(Error::failed("reserve", what));
    let ahead = from.saturating_sub(now);
    if from < now {
        return Err(Error::usage("--from", format!("{} has passed", utc(from))));
    }
    if until < from.saturating_add(SHORTEST) {
        return Err(Error::usage("--for", "is too short; write at least 1m"));
    }
    let length = until - from;
    if length > settings.longest.get().as_secs() {
        return wrong(format!(
            "the policy lets nobody reserve more than {} at once",
            settings.longest
        ));
    }
    if uid == 0 {
        return match ahead > 366 * 86_400 {
            true => wrong(format!("{} is more than a year ahead", utc(from))),
            false => Ok(()),
        };
    }
    if ahead > settings.ahead.get().as_secs() {
        return wrong(format!(
            "{} is more than {} ahead, which the policy allows",
            utc(from),
            settings.ahead
        ));
    }
    let own = times.iter().filter(|time| time.uid == uid && time.until > now);
    let (open, seconds) = own.fold((0_u64, length), |(open, sum), time| {
        (open + 1, sum + time.until - time.from)
    });
    if open >= settings.open.into() {
        let open = counted(usize::try_from(open).unwrap_or(usize::MAX), "reservation");
        return Err(Error::failed(
            "reserve",
            format!("you have {open} that are not over, and {} are the most", settings.open),
        )
        .hint("tranche reserve cancel gives one up"));
    }
    if seconds > u64::from(settings.hours) * 3600 {
        let hours = seconds.div_ceil(3600);
        return wrong(format!(
            "your reservations would have {hours} hours, and {} are the most",
            settings.hours
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
