use super::*;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq, proptest};

pub(super) fn time(from: u64, reason: Option<&str>) -> ReservedTime {
    ReservedTime {
        id: 0,
        uid: 1000,
        who: "ann".into(),
        device: "GPU-8188460b/1/0".parse().unwrap(),
        part: HeldPart::share("3".parse().unwrap(), "1/4".parse().unwrap()),
        label: "gpu 0:1 share 3".into(),
        from,
        until: from + 7200,
        before: 1800,
        no_show: 900,
        made: 1,
        zone: "Europe/Berlin".into(),
        offsets: [3600, 3600],
        reason: reason.map(str::to_owned),
    }
}

fn write(state_dir: &Path, text: &[u8]) {
    let file = Calendar::file(state_dir);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

#[test]
fn what_is_written_is_read_and_any_bit_that_changes_is_noticed() {
    let state = tempfile::tempdir().unwrap();
    assert_eq!(Calendar::read(state.path()).unwrap(), Calendar::default());
    let mut calendar = Calendar::default();
    assert_eq!(calendar.add(time(1_796_130_000, Some("a talk"))).id, 1);
    let whole = ReservedTime {
        part: HeldPart::Whole,
        ..time(1_796_140_000, None)
    };
    assert_eq!(calendar.add(whole).id, 2);
    let text = calendar.text(1_796_000_000).unwrap();
    write(state.path(), text.as_bytes());
    assert_eq!(Calendar::read(state.path()).unwrap(), calendar);
    for bit in 0..text.len() * 8 {
        let mut bytes = text.clone().into_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        write(state.path(), &bytes);
        match Calendar::read(state.path()) {
            Ok(read) => assert_eq!(read, calendar, "bit {bit}"),
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        }
    }
    for (text, why) in [
        ("", "is damaged"),
        ("{\"version\":2,\"times\":7}", "was written by a newer tranche"),
        ("{\"version\":1}", "is damaged"),
    ] {
        write(state.path(), text.as_bytes());
        let said = Calendar::read(state.path()).unwrap_err().to_string();
        assert!(said.contains(why) && said.contains("calendar.json"), "{said}");
    }
    write(state.path(), &vec![b' '; (512 << 10) + 1]);
    assert!(Calendar::read(state.path()).is_err(), "a file without end");
}

#[test]
fn as_many_as_are_allowed_fit_into_the_file() {
    let mut calendar = Calendar::default();
    for _ in 0..MOST_RESERVED {
        let longest = ReservedTime {
            who: "w".repeat(64),
            zone: "z".repeat(64),
            label: "l".repeat(64),
            ..time(1_796_130_000, Some(&"\u{1f600}".repeat(50)))
        };
        calendar.add(longest);
    }
    let text = calendar.text(0).unwrap();
    assert!((text.len() as u64) < MOST_BYTES, "{}", text.len());
}

#[test]
fn what_is_over_is_left_out_after_a_day_and_numbers_are_not_given_again() {
    let mut calendar = Calendar::default();
    calendar.add(time(1000, None));
    calendar.text(1000 + 7200 + 86_399).unwrap();
    assert_eq!(calendar.times.len(), 1);
    calendar.text(1000 + 7200 + 86_400).unwrap();
    assert_eq!(calendar.times.len(), 0);
    assert_eq!(calendar.add(time(1000, None)).id, 2);
}

#[test]
fn people_read_the_clock_of_the_zone_and_hostile_text_is_harmless() {
    // The night in which Berlin puts the clock back: 01:00 UTC is 02:00 CET, for the second time.
    let night = ReservedTime {
        from: 1_792_886_400,
        until: 1_792_900_800,
        offsets: [7200, 3600],
        who: "ann\u{1b}[2J".into(),
        reason: Some("a\u{202e}b".into()),
        ..time(0, None)
    };
    let said = night.to_string();
    let expected = "reserved for ann\\u{1b}[2J (uid 1000) from 2026-10-25 02:00 +02:00 until 2026-10-25 05:00 +01:00, \
                    reservation 0 (a\\u{202e}b)";
    assert_eq!(said, expected);
}

proptest! {
    #[test]
    fn covering_is_more_than_meeting(
        own in any::<u8>().prop_map(part_of),
        asked in any::<u8>().prop_map(part_of),
    ) {
        let device: DeviceKey = "GPU-8188460b".parse().unwrap();
        let time = ReservedTime { device: device.clone(), part: own, ..time(0, None) };
        if time.covers(&device, &asked) {
            prop_assert!(time.overlaps(&device, &asked));
        }
        prop_assert_eq!(time.covers(&device, &time.part), true);
    }
}

/// Shares by the bits of a number; none is the whole device.
fn part_of(bits: u8) -> HeldPart {
    let shares = (0..8).filter(|bit| bits & (1 << bit) != 0);
    let shares: Vec<_> = shares
        .map(|bit| crate::types::HeldShare {
            name: format!("s{bit}").parse().unwrap(),
            promise: "1/8".parse().unwrap(),
        })
        .collect();
    match shares.is_empty() {
        true => HeldPart::Whole,
        false => HeldPart::Shares(shares),
    }
}
