use super::*;
use tranche_core::ledger::ReservedTime;
use tranche_core::types::{HeldPart, HeldShare};

fn entry(id: u32, uid: u32, from: &str, hours: i64) -> CalendarEntry {
    let from: Zoned = from.parse().unwrap();
    let until = from.checked_add(jiff::SignedDuration::from_hours(hours)).unwrap();
    let seconds = |moment: &Zoned| moment.timestamp().as_second().try_into().unwrap();
    CalendarEntry {
        reserved: ReservedTime {
            id,
            uid,
            who: "ann".into(),
            device: "GPU-8188460b".parse().unwrap(),
            part: HeldPart::Whole,
            label: "gpu 2".into(),
            from: seconds(&from),
            until: seconds(&until),
            before: 1800,
            no_show: 900,
            made: 1_795_000_000,
            zone: "Europe/Berlin".into(),
            offsets: [from.offset().seconds(), until.offset().seconds()],
            reason: None,
        },
        state: TimeState::Later,
        held_by: Vec::new(),
    }
}

fn shared(mut entry: CalendarEntry) -> CalendarEntry {
    entry.reserved.part = HeldPart::Shares(vec![HeldShare {
        name: "3".parse().unwrap(),
        promise: "1/4".parse().unwrap(),
    }]);
    entry.reserved.label = "gpu 0 share 3".into();
    entry
}

const NOW: &str = "2026-10-23T12:00:00+02:00[Europe/Berlin]";

#[test]
fn the_table_has_80_columns_and_says_who_still_holds_what() {
    let mut first = entry(7, 1000, "2026-10-24T14:00:00+02:00[Europe/Berlin]", 2);
    first.reserved.reason = Some(format!("a talk \u{1b}[2J about {}", "turbulence ".repeat(8).trim()));
    (first.state, first.held_by) = (TimeState::Now, vec!["claim \u{202e}train on share 3".into()]);
    // Over the night in which the clock is put back.
    let night = entry(12, 1001, "2026-10-24T22:00:00+02:00[Europe/Berlin]", 12);
    let zone = TimeZone::get("Europe/Berlin").unwrap();
    let text = table(&[first, night], &zone);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("7   gpu 2  Sat 24 Oct 14:00  16:00"), "{text}");
    assert!(text.contains("Sat 24 Oct 22:00  25 Oct 09:00"), "{text}");
    assert!(
        text.contains("reservation 7: still held by claim \\u{202e}train on share 3"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "{text}");
    assert_eq!(table(&[], &zone), "nothing is reserved\n");
}

#[test]
fn a_week_is_a_line_for_each_device_also_when_the_clock_is_changed() {
    let mut given_up = entry(4, 1001, "2026-10-28T00:00:00+01:00[Europe/Berlin]", 24);
    given_up.state = TimeState::GivenUp;
    let answer = CalendarAnswer {
        entries: vec![
            entry(1, 1000, "2026-10-23T14:00:00+02:00[Europe/Berlin]", 2),
            shared(entry(2, 1001, "2026-10-25T00:00:00+02:00[Europe/Berlin]", 25)),
            entry(3, 1001, "2026-10-29T21:00:00+01:00[Europe/Berlin]", 3),
            given_up,
        ],
        devices: vec!["gpu 0".into(), "gpu 1".into()],
        uid: 1000,
        changed: None,
    };
    let expected = "       \
                    Fri 23   Sat 24   Sun 25   Mon 26   Tue 27   Wed 28   Thu 29
gpu 0  ........ ........ ++++++++ ........ ........ ........ ........
gpu 1  ........ ........ ........ ........ ........ ........ ........
gpu 2  ....**.. ........ ........ ........ ........ ........ .......#
A mark is three hours: # reserved, + a share of it, * yours, . free
";
    assert_eq!(week::text(&answer, &NOW.parse().unwrap()), expected);
}

#[test]
fn a_calendar_program_gets_lines_of_75_bytes_with_escaped_text() {
    let mut one = entry(7, 1000, "2026-10-24T14:00:00+02:00[Europe/Berlin]", 2);
    one.reserved.reason = Some(format!("x; y, z\\ BEGIN:VEVENT {}", "ü".repeat(60)));
    let text = ics::text(&[one]);
    assert!(
        text.starts_with("BEGIN:VCALENDAR\r\nVERSION:2.0\r\n") && text.ends_with("END:VCALENDAR\r\n"),
        "{text}"
    );
    assert!(
        text.contains("DTSTART:20261024T120000Z\r\nDTEND:20261024T140000Z\r\nSUMMARY:gpu 2: ann\r\n"),
        "{text}"
    );
    assert!(text.lines().all(|line| line.len() <= 75), "{text}");
    let joined = text.replace("\r\n ", "");
    assert!(
        joined.contains("DESCRIPTION:x\\; y\\, z\\\\ BEGIN:VEVENT ü"),
        "{joined}"
    );
    assert_eq!(
        joined.lines().filter(|line| line.starts_with("BEGIN:VEVENT")).count(),
        1
    );
}
