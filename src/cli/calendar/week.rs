//! Seven days, a line for each device.

use super::local;
use jiff::{ToSpan, Zoned};
use std::fmt::Write;
use tranche_core::ledger::ReservedTime;
use tranche_core::text::shown;
use tranche_core::types::HeldPart;
use tranche_protocol::{CalendarAnswer, TimeState};

/// How many days.
const DAYS: i64 = 7;

/// How many marks a day has, each of three hours.
const MARKS: i64 = 8;

/// The days from that of `now` on, in 80 columns.
pub(super) fn text(answer: &CalendarAnswer, now: &Zoned) -> String {
    let zone = now.time_zone();
    let entries = answer.entries.iter();
    let times: Vec<&ReservedTime> = entries
        .filter(|entry| entry.state != TimeState::GivenUp)
        .map(|entry| &entry.reserved)
        .collect();
    let mut devices: Vec<&str> = answer.devices.iter().map(String::as_str).collect();
    for time in &times {
        let device = device_of(time);
        if !devices.contains(&device) {
            devices.push(device);
        }
    }
    let days: Vec<_> = (0..DAYS)
        .filter_map(|day| now.date().checked_add(day.days()).ok())
        .collect();
    let wide = devices
        .iter()
        .map(|device| shown(device).chars().count())
        .max()
        .unwrap_or(0);
    let header = days
        .iter()
        .map(|day| format!("{:<8}", day.strftime("%a %d").to_string()));
    let mut text = format!("{:<wide$}  {}\n", "", header.collect::<Vec<_>>().join(" ").trim_end());
    for device in devices {
        let of_device: Vec<&&ReservedTime> = times.iter().filter(|time| device_of(time) == device).collect();
        let marks = days.iter().map(|day| {
            let mark = |number: i64| {
                let begin = day
                    .at(i8::try_from(number * 3).unwrap_or(0), 0, 0, 0)
                    .to_zoned(zone.clone())
                    .ok()?;
                // By the clock: a day on which it is changed has 23 or 25 hours.
                let end = match number + 1 {
                    MARKS => day.tomorrow().ok()?.to_zoned(zone.clone()).ok()?,
                    next => day
                        .at(i8::try_from(next * 3).unwrap_or(0), 0, 0, 0)
                        .to_zoned(zone.clone())
                        .ok()?,
                };
                let mut then = of_device
                    .iter()
                    .filter(|time| local(time.from, zone) < end && begin < local(time.until, zone));
                let first = then.clone().next()?;
                Some(match first.part {
                    _ if then.any(|time| time.uid == answer.uid) => '*',
                    HeldPart::Whole => '#',
                    HeldPart::Shares(_) => '+',
                })
            };
            (0..MARKS).map(|number| mark(number).unwrap_or('.')).collect::<String>()
        });
        let marks = marks.collect::<Vec<_>>().join(" ");
        // A line that cannot be written to a String does not exist.
        let _ = writeln!(text, "{:<wide$}  {marks}", shown(device));
    }
    text.push_str("A mark is three hours: # reserved, + a share of it, * yours, . free\n");
    text
}

/// What people call the device of a reservation: its label without the share.
fn device_of(time: &ReservedTime) -> &str {
    let share = time.label.find(" share");
    share.map_or(&time.label, |at| time.label.get(..at).unwrap_or(&time.label))
}
