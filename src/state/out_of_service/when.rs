//! The time from which on a device is out of service.

use std::time::{SystemTime, UNIX_EPOCH};
use tranche_core::error::{Error, Result};

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// The latest time that is accepted: further ahead, a year was mistyped.
const MOST_DAYS: u64 = 3660;

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// The moment that `text` names, in seconds since 1970: `2026-11-26T08:00`, `08:00` (the next time that it is that
/// late) or `+2h`. Times are in UTC, as every time that tranche prints; a `Z` may follow.
///
/// # Errors
/// Returns a usage error for anything else, and for a moment that has passed.
pub(super) fn when(text: &str) -> Result<u64> {
    after(text, now())
}

fn after(text: &str, now: u64) -> Result<u64> {
    let wrong = |what: &str| {
        Error::usage(format!("--at {text}"), what).hint("write 2026-11-26T08:00, 08:00 (both UTC), +2h, +30m or +1d")
    };
    let moment = match text.strip_prefix('+') {
        Some(span) => length(span).and_then(|span| now.checked_add(span)),
        None => {
            let text = text.strip_suffix('Z').unwrap_or(text);
            match text.split_once(['T', ' ']) {
                Some((date, time)) => day(date).zip(clock(time)).map(|(day, time)| day * DAY + time),
                None => clock(text).map(|time| {
                    let today = now / DAY * DAY + time;
                    if today > now { today } else { today + DAY }
                }),
            }
        }
    };
    match moment {
        None => Err(wrong("is not a time")),
        Some(moment) if moment <= now => Err(wrong("has passed; without --at, it is now")),
        Some(moment) if moment > now + MOST_DAYS * DAY => Err(wrong("is more than ten years ahead")),
        Some(moment) => Ok(moment),
    }
}

/// `2h` in seconds.
fn length(text: &str) -> Option<u64> {
    let unit = match text.chars().last()? {
        'm' => MINUTE,
        'h' => HOUR,
        'd' => DAY,
        _ => return None,
    };
    number(text.get(..text.len() - 1)?)?.checked_mul(unit)
}

/// `08:00` or `08:00:00` in seconds of the day.
fn clock(text: &str) -> Option<u64> {
    let parts: Vec<u64> = text.split(':').map(number).collect::<Option<_>>()?;
    match parts[..] {
        [hours @ 0..24, minutes @ 0..60] => Some(hours * HOUR + minutes * MINUTE),
        [hours @ 0..24, minutes @ 0..60, seconds @ 0..60] => Some(hours * HOUR + minutes * MINUTE + seconds),
        _ => None,
    }
}

/// `2026-11-26` in days since 1970-01-01.
fn day(text: &str) -> Option<u64> {
    let parts: Vec<u64> = text.split('-').map(number).collect::<Option<_>>()?;
    let [year @ 1970..=9999, month @ 1..=12, day @ 1..=31] = parts[..] else {
        return None;
    };
    let is_leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let length = |month: u64| match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    let years: u64 = (1970..year).map(|year| if is_leap(year) { 366 } else { 365 }).sum();
    let months: u64 = (1..month).map(length).sum();
    (day <= length(month)).then(|| years + months + day - 1)
}

fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.len() <= 6 && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_core::ledger::utc;

    /// 2026-11-21 02:10:00 UTC.
    const NOW: u64 = 1_795_227_000;

    #[test]
    fn moments() {
        for (text, expected) in [
            ("2026-11-26T08:00", "2026-11-26 08:00:00 UTC"),
            ("2026-11-26 08:00:30Z", "2026-11-26 08:00:30 UTC"),
            ("2028-02-29T00:00", "2028-02-29 00:00:00 UTC"),
            ("08:00", "2026-11-21 08:00:00 UTC"),
            // It is later than that today.
            ("02:00", "2026-11-22 02:00:00 UTC"),
            ("02:10", "2026-11-22 02:10:00 UTC"),
            ("+2h", "2026-11-21 04:10:00 UTC"),
            ("+90m", "2026-11-21 03:40:00 UTC"),
            ("+1d", "2026-11-22 02:10:00 UTC"),
        ] {
            assert_eq!(utc(after(text, NOW).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_moment_is_refused_in_one_line() {
        for (text, why) in [
            ("", "is not a time"),
            ("tomorrow", "is not a time"),
            ("+2", "is not a time"),
            ("+h", "is not a time"),
            ("+-2h", "is not a time"),
            ("24:00", "is not a time"),
            ("8", "is not a time"),
            ("2027-02-29T08:00", "is not a time"),
            ("2026-13-01T08:00", "is not a time"),
            ("2026-11-26T08:00+01:00", "is not a time"),
            ("+999999999999999999999d", "is not a time"),
            ("2026-11-20T08:00", "has passed"),
            ("+0m", "has passed"),
            ("2062-11-26T08:00", "is more than ten years ahead"),
        ] {
            let error = after(text, NOW).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains('\n'), "{text}: {error}");
        }
    }
}
