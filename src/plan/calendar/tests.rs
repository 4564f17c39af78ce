use super::*;
use crate::policy::LongTime;
use proptest::prelude::{Strategy, prop, prop_assert, prop_assert_eq, proptest};
use tranche_core::types::HeldShare;

const HOUR: u64 = 3600;

fn key(gpu: u32) -> DeviceKey {
    format!("GPU-0000000{gpu}").parse().unwrap()
}

fn time(uid: u32, gpu: u32, from: u64, until: u64) -> ReservedTime {
    ReservedTime {
        id: 0,
        uid,
        who: "ann".into(),
        device: key(gpu),
        part: HeldPart::Whole,
        label: format!("gpu {gpu}"),
        from,
        until,
        before: 1800,
        no_show: 900,
        made: 0,
        zone: "UTC".into(),
        offsets: [0, 0],
        reason: None,
    }
}

fn hours(from: u64, until: u64) -> Period {
    Period {
        from: from * HOUR,
        until: until * HOUR,
    }
}

fn whole(times: &[ReservedTime], gpu: u32, period: Period) -> Result<(), NotFree> {
    let settings = CalendarSettings::default();
    is_free(
        times,
        &settings,
        (&key(gpu), &HeldPart::Whole, Bounds::default()),
        period,
    )
}

#[test]
fn two_reservations_of_one_device_do_not_overlap_and_may_touch() {
    let times = [time(1, 1, 10 * HOUR, 12 * HOUR)];
    for (from, until, is_ok) in [
        (8, 10, true),
        (12, 14, true),
        (11, 13, false),
        (9, 13, false),
        (9, 11, false),
    ] {
        assert_eq!(whole(&times, 1, hours(from, until)).is_ok(), is_ok, "{from} to {until}");
        assert!(whole(&times, 2, hours(from, until)).is_ok());
    }
}

#[test]
fn shares_of_a_device_are_reserved_at_once_as_far_as_they_fit() {
    let settings = CalendarSettings::default();
    let taken = |number: u32, from: u64, until: u64| ReservedTime {
        part: part(number),
        ..time(1, 1, from * HOUR, until * HOUR)
    };
    // Two thirds from 10 on, and three from 12 to 13.
    let times = [taken(0, 10, 14), taken(1, 10, 14), taken(2, 12, 13)];
    let fourth = |from: u64, until: u64| {
        let asked = (&key(1), &part(3), Bounds::default());
        is_free(&times, &settings, asked, hours(from, until))
    };
    assert_eq!(fourth(10, 12), Ok(()));
    assert_eq!(fourth(13, 14), Ok(()));
    for (from, until) in [(11, 14), (12, 13), (10, 13)] {
        assert_eq!(
            fourth(from, until),
            Err(NotFree::TooMuch { at: 12 * HOUR }),
            "{from} to {until}"
        );
    }
}

#[test]
fn reservations_of_a_gpu_leave_a_gap_for_those_who_wait() {
    let day = [time(1, 1, 0, 12 * HOUR), time(2, 1, 12 * HOUR, 24 * HOUR)];
    let said = whole(&day, 1, hours(24, 25)).unwrap_err();
    assert!(
        matches!(said, NotFree::TooLong { from: 0, until, .. } if until == 25 * HOUR),
        "{said:?}"
    );
    // The gap is the half hour before a reservation, and half an hour more.
    assert!(whole(&day, 1, hours(25, 26)).is_ok());
    let at = Period {
        from: 25 * HOUR - 1,
        until: 26 * HOUR,
    };
    assert!(whole(&day, 1, at).is_err());
    // Also where it joins what was apart.
    let apart = [time(1, 1, 0, 12 * HOUR), time(2, 1, 14 * HOUR, 26 * HOUR)];
    assert!(whole(&apart, 1, hours(12, 14)).is_err());
}

#[test]
fn the_limits_of_a_user() {
    let settings = CalendarSettings {
        ahead: LongTime::days(2),
        hours: 10,
        open: 2,
        ..CalendarSettings::default()
    };
    let now = 100 * HOUR;
    let check = |times: &[ReservedTime], uid: u32, from: u64, until: u64| {
        check_period(times, &settings, uid, hours(from, until), now).map_err(|error| error.to_string())
    };
    let own = [
        time(7, 1, 90 * HOUR, 99 * HOUR),
        time(7, 1, 99 * HOUR, 104 * HOUR),
        time(8, 1, 110 * HOUR, 120 * HOUR),
    ];
    check(&own, 7, 120, 125).unwrap();
    for (from, until, why) in [
        (99, 101, "has passed"),
        (120, 126, "would have 11 hours, and 10 are the most"),
        (149, 150, "more than 2d ahead"),
        (120, 120, "too short"),
        (120, 145, "more than 24h at once"),
    ] {
        let said = check(&own, 7, from, until).unwrap_err();
        assert!(said.contains(why) && !said.contains('\n'), "{said}");
    }
    let two = [&own[..], &[time(7, 2, 105 * HOUR, 106 * HOUR)]].concat();
    let said = check(&two, 7, 120, 121).unwrap_err();
    assert!(said.contains("you have 2 reservations that are not over"), "{said}");
    // Root has no limit but that of a year.
    check(&two, 0, 300, 320).unwrap();
    assert!(check(&two, 0, 10_000, 10_001).is_err());
}

#[test]
fn the_settings_of_a_policy_have_bounds() {
    let read = |text: &str| serde_saphyr::from_str::<CalendarSettings>(text).map_err(|error| error.to_string());
    assert_eq!(read("{}").unwrap(), CalendarSettings::default());
    let read_all = read("{before: 10m, clear: end, noShow: 5m, ahead: 30d, hours: 8, open: 1, longest: 12h}").unwrap();
    assert_eq!(
        (read_all.ahead, read_all.hours, read_all.open),
        (LongTime::days(30), 8, 1)
    );
    for wrong in [
        "{before: 25h}",
        "{noShow: 0s}",
        "{longest: 1s}",
        "{ahead: 400d}",
        "{clear: kill}",
        "{often: 1}",
    ] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

/// A wish of one of a few users: a GPU or a quarter of one, when, and for how long.
fn wishes() -> impl Strategy<Value = Vec<(u32, u32, u32, u64, u64)>> {
    prop::collection::vec((1..5_u32, 0..3_u32, 0..6_u32, 0..400_u64, 1..30_u64), 1..120)
}

fn part(number: u32) -> HeldPart {
    match number {
        4.. => HeldPart::Whole,
        _ => HeldPart::Shares(vec![HeldShare {
            name: format!("q{number}").parse().unwrap(),
            promise: "1/3".parse().unwrap(),
        }]),
    }
}

proptest! {
    /// Whatever is asked for in whatever order: C1, C2 and C3 hold of what is accepted, at each half hour.
    #[test]
    fn what_is_accepted_keeps_the_rules(wishes in wishes()) {
        let settings = CalendarSettings { open: 5, hours: 60, ..CalendarSettings::default() };
        let mut times: Vec<ReservedTime> = Vec::new();
        for (uid, gpu, number, from, length) in wishes {
            let (from, until) = (from * HOUR / 2, (from + length) * HOUR / 2);
            let period = Period { from, until };
            let part = part(number);
            let asked = (&key(gpu), &part, Bounds::default());
            if check_period(&times, &settings, uid, period, 0).is_ok() && is_free(&times, &settings, asked, period).is_ok() {
                times.push(ReservedTime { part, ..time(uid, gpu, from, until) });
            }
        }
        for gpu in 0..3 {
            let of_gpu: Vec<&ReservedTime> = times.iter().filter(|time| time.device == key(gpu)).collect();
            let mut row = 0;
            let mut gap = settings.gap();
            for half in 0..440 {
                let at = half * HOUR / 2;
                let then: Vec<&&ReservedTime> = of_gpu.iter().filter(|time| time.from <= at && at < time.until).collect();
                for (number, one) in then.iter().enumerate() {
                    prop_assert!(then[number + 1..].iter().all(|other| !one.overlaps(&other.device, &other.part)));
                }
                // Quarters are thirds of the device here, so three of the four fit.
                prop_assert!(then.len() <= 3, "{} of 3", then.len());
                match then.is_empty() {
                    true => gap += HOUR / 2,
                    false if gap >= settings.gap() => (row, gap) = (HOUR / 2, 0),
                    false => (row, gap) = (row + gap + HOUR / 2, 0),
                }
                prop_assert!(row <= 24 * HOUR, "{row} s in a row");
            }
        }
        for uid in 1..5 {
            let own: Vec<&ReservedTime> = times.iter().filter(|time| time.uid == uid).collect();
            prop_assert!(own.len() <= 5);
            prop_assert!(own.iter().map(|time| time.until - time.from).sum::<u64>() <= 60 * HOUR);
        }
    }

    /// A reservation that is accepted is accepted as well when less is reserved.
    #[test]
    fn less_that_is_reserved_is_never_in_the_way(first in 0..60_u64, second in 0..60_u64, from in 0..60_u64, length in 1..20_u64) {
        let times = [time(1, 1, first * HOUR, (first + 3) * HOUR), time(1, 1, second * HOUR, (second + 3) * HOUR)];
        let period = hours(from, from + length);
        if whole(&times, 1, period).is_ok() {
            prop_assert_eq!(whole(&times[..1], 1, period), Ok(()));
            prop_assert_eq!(whole(&times[1..], 1, period), Ok(()));
        }
    }
}
