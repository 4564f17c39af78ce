//! The calendar's file: `tranche reserve`.
//!
//! It is changed under the lock of the ledger, so that two people at once lose nothing of each other, and nothing is
//! given between a decision and its record. A new file replaces the old one, so a process that is killed on the way
//! leaves one of both.

use crate::replace;
use std::path::Path;
use tranche_core::error::{Context, Error, Result};
use tranche_core::ledger::calendar::MOST_RESERVED;
use tranche_core::ledger::{Calendar, Ledger, clock, utc};

/// The longest name of a time zone; the longest of the IANA database has 32 characters.
const LONGEST_ZONE: usize = 64;

/// The most seconds that a zone differs from UTC.
const MOST_OFFSET: i32 = 26 * 3600;

/// Changes the calendar of the machine whose ledger is in `state_dir`. `change` gets it with the time that counts, in
/// seconds since 1970, and its error leaves it as it is.
///
/// # Errors
/// Returns the error of `change`, and an error if the clock is behind the last change, or if the file is damaged or
/// cannot be written.
pub fn change<T>(state_dir: &Path, change: impl FnOnce(&mut Calendar, u64) -> Result<T>) -> Result<T> {
    let ledger = Ledger::restored(state_dir)?;
    let _locked = ledger.lock()?;
    let mut calendar = Calendar::read(state_dir)?;
    let now = clock();
    if let Some(changed) = calendar.is_behind(now) {
        let what = format!("it says {}, and the calendar was changed at {}", utc(now), utc(changed));
        return Err(Error::failed("clock", what).hint(
            "set the clock; or, if the calendar is what is wrong, root empties it with tranche reserve cancel all",
        ));
    }
    let now = calendar.now(now);
    let done = change(&mut calendar, now)?;
    write(state_dir, calendar, now)?;
    Ok(done)
}

/// Empties the calendar, and repairs a damaged file by that. Returns how many reservations there were, as far as they
/// can be read.
///
/// # Errors
/// Returns an error if the file cannot be removed.
pub fn empty(state_dir: &Path) -> Result<usize> {
    let ledger = Ledger::restored(state_dir)?;
    let _locked = ledger.lock()?;
    let path = Calendar::file(state_dir);
    let Ok(mut before) = Calendar::read(state_dir) else {
        replace::remove(&path)?;
        return Ok(0);
    };
    let count = before.times.len();
    before.times.clear();
    // Their numbers are not given again.
    write(state_dir, before, clock())?;
    Ok(count)
}

fn write(state_dir: &Path, mut calendar: Calendar, now: u64) -> Result<()> {
    let path = Calendar::file(state_dir);
    let text = calendar.text(now).about(path.display(), "cannot be written as JSON")?;
    if calendar.times.len() > MOST_RESERVED {
        let what = format!("has {MOST_RESERVED} reservations, and no more are kept");
        return Err(Error::failed("calendar", what).hint("cancel one, or wait until one is over"));
    }
    replace::write(&path, &text)
}

/// Checks the zone that is written down with a reservation: a client may send anything.
///
/// # Errors
/// Returns a usage error.
pub fn check_zone(zone: &str, offsets: [i32; 2]) -> Result<()> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "/_+-:".contains(c);
    let is_zone = !zone.is_empty() && zone.len() <= LONGEST_ZONE && zone.chars().all(is_name);
    match is_zone
        && offsets
            .iter()
            .all(|offset| offset.unsigned_abs() <= MOST_OFFSET.unsigned_abs())
    {
        true => Ok(()),
        false => Err(Error::usage(
            "time zone",
            "is not one like Europe/Berlin with its offset from UTC",
        )),
    }
}

#[cfg(test)]
mod tests;
