//! The calendar for other programs (RFC 5545).

use crate::calendar::local;
use jiff::tz::TimeZone;
use tranche_core::text::shown;
use tranche_protocol::CalendarEntry;

/// The most bytes of a line without its end (RFC 5545, 3.1).
const LINE: usize = 75;

/// The reservations as a calendar. Times are in UTC, which needs no description of a time zone.
pub(super) fn text(entries: &[CalendarEntry]) -> String {
    let mut lines: Vec<String> = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//tranche//calendar//EN"]
        .map(str::to_owned)
        .into();
    for CalendarEntry { reserved, .. } in entries {
        let at = |seconds: u64| local(seconds, &TimeZone::UTC).strftime("%Y%m%dT%H%M%SZ").to_string();
        lines.push("BEGIN:VEVENT".to_owned());
        lines.push(format!("UID:{}-{}@tranche", reserved.id, reserved.made));
        lines.push(format!("DTSTAMP:{}", at(reserved.made)));
        lines.push(format!("DTSTART:{}", at(reserved.from)));
        lines.push(format!("DTEND:{}", at(reserved.until)));
        lines.push(format!(
            "SUMMARY:{}",
            escaped(&format!("{}: {}", reserved.label, reserved.who))
        ));
        let reason = reserved.reason.iter();
        lines.extend(reason.map(|reason| format!("DESCRIPTION:{}", escaped(reason))));
        lines.push("END:VEVENT".to_owned());
    }
    lines.push("END:VCALENDAR".to_owned());
    lines.iter().map(|line| folded(line)).collect()
}

/// `text` as a value (RFC 5545, 3.3.11).
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in shown(text).chars() {
        if matches!(c, '\\' | ';' | ',') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// A line with its end, continued below where it is too long.
fn folded(line: &str) -> String {
    let mut folded = String::new();
    let mut length = 0;
    for c in line.chars() {
        if length + c.len_utf8() > LINE {
            folded.push_str("\r\n ");
            length = 1;
        }
        folded.push(c);
        length += c.len_utf8();
    }
    folded.push_str("\r\n");
    folded
}
