//! The times that people write, in their time zone.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan, Zoned};
use tranche_core::error::{Error, Result};

/// A time from one moment to another.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Moments {
    /// Its begin, in seconds since 1970.
    pub(super) from: u64,
    /// Its end.
    pub(super) until: u64,
    /// The time zone in which it was written.
    pub(super) zone: String,
    /// What the zone adds to UTC at the begin and at the end, in seconds.
    pub(super) offsets: [i32; 2],
}

/// The time that begins at `from`, as a person of this machine writes it, and lasts `length` seconds, whatever clocks
/// are put forward or back meanwhile.
///
/// # Errors
/// Returns a usage error if `from` is no moment, is none of that day, or is two because the clock is put back.
pub(super) fn period(from: &str, length: u64) -> Result<Moments> {
    after(from, length, &Zoned::now())
}

fn after(from: &str, length: u64, now: &Zoned) -> Result<Moments> {
    let begin = moment(from.trim(), now)?;
    let seconds = |moment: &Zoned| u64::try_from(moment.timestamp().as_second()).ok();
    let wrong = || Error::usage(format!("--from {from}"), "is out of range");
    let seconds_of = i64::try_from(length).map_err(|_| wrong())?;
    let end = begin.checked_add(seconds_of.seconds()).map_err(|_| wrong())?;
    let offset = |moment: &Zoned| moment.offset().seconds();
    let zone = match begin.time_zone().iana_name() {
        Some(name) => name.to_owned(),
        // A zone without a name: of a fixed offset, or of TZ in the form of POSIX.
        None => format!("UTC{}", begin.offset()),
    };
    Ok(Moments {
        from: seconds(&begin).ok_or_else(wrong)?,
        until: seconds(&end).ok_or_else(wrong)?,
        zone,
        offsets: [offset(&begin), offset(&end)],
    })
}

fn moment(text: &str, now: &Zoned) -> Result<Zoned> {
    let zone = now.time_zone();
    if text == "now" {
        return Ok(now.clone());
    }
    if let Ok(moment) = text.parse::<Zoned>() {
        return Ok(moment);
    }
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment.to_zoned(zone.clone()));
    }
    let not_a_time = || {
        let hint = "write 14:00, \"tomorrow 14:00\", \"2026-12-01 14:00\" or 2026-12-01T14:00:00+01:00";
        Error::usage(format!("--from {text}"), "is not a time").hint(hint)
    };
    let on = |date: Date, clock: &str| match clock.trim().parse::<Time>() {
        Ok(clock) => on_the_wall(date.to_datetime(clock), zone),
        Err(_) => Err(not_a_time()),
    };
    // For the library, 14 is a time and a date is midnight, and here they are oversights.
    if !text.contains(':') {
        return Err(not_a_time());
    }
    let today = now.date();
    let tomorrow = today.tomorrow().map_err(|_| not_a_time())?;
    match text.split_once(' ') {
        Some(("today", clock)) => on(today, clock),
        Some(("tomorrow", clock)) => on(tomorrow, clock),
        _ if text.contains('-') => {
            let date_time = text.parse::<DateTime>().map_err(|_| not_a_time())?;
            on_the_wall(date_time, zone)
        }
        // The next time that it is that late.
        _ => match on(today, text) {
            Ok(moment) if moment > *now => Ok(moment),
            _ => on(tomorrow, text),
        },
    }
}

/// The moment at which clocks of `zone` show this.
fn on_the_wall(date_time: DateTime, zone: &TimeZone) -> Result<Zoned> {
    let moment = zone.to_ambiguous_zoned(date_time);
    let text = date_time.strftime("%Y-%m-%d %H:%M");
    match moment.offset() {
        AmbiguousOffset::Unambiguous { .. } => moment
            .compatible()
            .map_err(|error| Error::usage(format!("--from {text}"), "is out of range").from_source(error)),
        AmbiguousOffset::Gap { .. } => {
            let what = "does not exist in this time zone, because clocks are put forward";
            Err(Error::usage(format!("--from {text}"), what))
        }
        AmbiguousOffset::Fold { before, after } => {
            let what = "is twice in this time zone, because clocks are put back";
            let written = date_time.strftime("%Y-%m-%dT%H:%M:%S");
            let hint = format!("write {written}{before}:00 or {written}{after}:00");
            Err(Error::usage(format!("--from {text}"), what).hint(hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(text: &str) -> Zoned {
        text.parse().unwrap()
    }

    fn shown(from: &str, at: &str) -> std::result::Result<String, String> {
        let moments = after(from, 3600, &now(at)).map_err(|error| error.to_string())?;
        let zone = TimeZone::get(&moments.zone).unwrap_or(TimeZone::UTC);
        let zoned = |seconds: u64| {
            let seconds = Timestamp::from_second(seconds.try_into().unwrap()).unwrap();
            seconds
                .to_zoned(zone.clone())
                .strftime("%Y-%m-%d %H:%M %:z")
                .to_string()
        };
        Ok(format!(
            "{} {} {}",
            zoned(moments.from),
            zoned(moments.until),
            moments.zone
        ))
    }

    const AFTERNOON: &str = "2026-11-28T15:10:20+01:00[Europe/Berlin]";

    #[test]
    fn moments_as_people_write_them() {
        for (from, expected) in [
            ("16:00", "2026-11-28 16:00"),
            ("14:00", "2026-11-29 14:00"),
            ("today 23:30", "2026-11-28 23:30"),
            ("tomorrow 14:00", "2026-11-29 14:00"),
            ("2026-12-01 14:00", "2026-12-01 14:00"),
            ("2026-12-01T14:00", "2026-12-01 14:00"),
            ("2026-12-01T14:00:00+01:00", "2026-12-01 14:00"),
            ("2026-12-01T13:00:00Z", "2026-12-01 14:00"),
            ("now", "2026-11-28 15:10"),
        ] {
            let said = shown(from, AFTERNOON).unwrap();
            assert!(
                said.starts_with(expected) && said.ends_with("Europe/Berlin"),
                "{from}: {said}"
            );
        }
        let other = shown("2026-12-01T14:00:00-05:00[America/New_York]", AFTERNOON).unwrap();
        assert_eq!(
            other,
            "2026-12-01 14:00 -05:00 2026-12-01 15:00 -05:00 America/New_York"
        );
    }

    #[test]
    fn what_is_not_a_moment_is_refused_in_one_line() {
        for from in [
            "",
            "noon",
            "25:00",
            "14",
            "tomorrow",
            "tomorrow noon",
            "2026-12-01",
            "2026-02-30 14:00",
            "2026-12-01 14:00 CET",
            "\u{1b}[2J",
        ] {
            let said = shown(from, AFTERNOON).unwrap_err();
            assert!(said.contains("is not a time") && !said.contains('\n'), "{from}: {said}");
        }
    }

    #[test]
    fn the_nights_in_which_clocks_are_changed() {
        // An hour of the clock is missing, and one is there twice.
        let spring = "2026-03-28T12:00:00+01:00[Europe/Berlin]";
        assert_eq!(
            shown("2026-03-29 01:30", spring).unwrap(),
            "2026-03-29 01:30 +01:00 2026-03-29 03:30 +02:00 Europe/Berlin"
        );
        assert!(
            shown("2026-03-29 02:30", spring)
                .unwrap_err()
                .contains("does not exist")
        );
        assert!(shown("tomorrow 02:30", spring).unwrap_err().contains("does not exist"));
        let autumn = "2026-10-24T12:00:00+02:00[Europe/Berlin]";
        assert_eq!(
            shown("2026-10-25 01:30", autumn).unwrap(),
            "2026-10-25 01:30 +02:00 2026-10-25 02:30 +02:00 Europe/Berlin"
        );
        let said = after("2026-10-25 02:30", 60, &now(autumn)).unwrap_err();
        let said = format!("{said} {}", tranche_core::error::line(&said));
        assert!(
            said.contains("is twice") && said.contains("2026-10-25T02:30:00+02:00"),
            "{said}"
        );
        assert_eq!(
            shown("2026-10-25T02:30:00+02:00", autumn).unwrap(),
            "2026-10-25 02:30 +02:00 2026-10-25 02:30 +01:00 Europe/Berlin"
        );
        assert_eq!(
            shown("2026-10-25T02:30:00+01:00", autumn).unwrap(),
            "2026-10-25 02:30 +01:00 2026-10-25 03:30 +01:00 Europe/Berlin"
        );
    }
}
