//! What is reserved for later, as it binds those who ask.

use super::*;
use crate::ledger::calendar::{Calendar, NearTimes, ReservedTime};
use std::collections::BTreeSet;

const HOUR: u64 = 3600;
/// 2026-12-01 13:00:00 UTC.
const FROM: u64 = 1_796_130_000;

fn time(uid: u32, part: HeldPart, from: u64, until: u64) -> ReservedTime {
    ReservedTime {
        id: 0,
        uid,
        who: format!("user{uid}"),
        device: key("GPU-11111111"),
        part,
        label: "gpu 0".into(),
        from,
        until,
        before: 1800,
        no_show: 900,
        made: FROM - 24 * HOUR,
        zone: "Europe/Berlin".into(),
        offsets: [3600, 3600],
        reason: None,
    }
}

/// A book when the clock says `clock`. `begun` are the reservations that were used.
fn at(clock: u64, times: &[ReservedTime], begun: &[u32]) -> Book {
    let mut calendar = Calendar::default();
    for time in times {
        calendar.add(time.clone());
    }
    let begun: BTreeSet<u32> = begun.iter().copied().collect();
    let gpu = "GPU-11111111".parse().unwrap();
    let near = NearTimes::at(&calendar, Some(&gpu), clock, 1_000_000, || Ok(begun));
    book().with_times(near.unwrap())
}

fn by(uid: u32, part: HeldPart) -> Ask {
    Ask {
        uid,
        ..ask(part, &format!("c{uid}"), 10)
    }
}

#[test]
fn until_shortly_before_a_reserved_time_everything_is_given_and_then_what_ends_in_time() {
    let times = [time(1000, HeldPart::Whole, FROM, FROM + 2 * HOUR)];
    let taken = |clock: u64, uid: u32, ends_within: Option<u64>| {
        let mut book = at(clock, &times, &[1]);
        book.asked_by(uid, ends_within);
        book.take(&by(uid, HeldPart::Whole), &Toy::new())
    };
    for (clock, ends_within, is_given) in [
        (FROM - 1801, None, true),
        (FROM - 1800, None, false),
        (FROM - 1800, Some(1800), true),
        (FROM - 1800, Some(1801), false),
        (FROM - 1, Some(1), true),
        (FROM, Some(1), false),
        (FROM + 2 * HOUR - 1, None, false),
        (FROM + 2 * HOUR, None, true),
    ] {
        let said = taken(clock, 1001, ends_within);
        assert_eq!(said.is_ok(), is_given, "{} before: {said:?}", FROM.abs_diff(clock));
        taken(clock, 1000, None).expect("the user who has reserved it");
    }
    let said = taken(FROM, 0, None).unwrap_err().to_string();
    let expected =
        "reserved for user1000 (uid 1000) from 2026-12-01 14:00 until 2026-12-01 16:00 +01:00, reservation 1";
    assert_eq!(said, expected);
}

#[test]
fn a_reservation_that_nobody_uses_is_given_up_and_one_that_was_used_is_not() {
    let times = [time(1000, HeldPart::Whole, FROM, FROM + 2 * HOUR)];
    let world = Toy::new();
    let is_given = |book: &mut Book| book.take(&by(1001, HeldPart::Whole), &world).is_ok();
    assert!(!is_given(&mut at(FROM + 899, &times, &[])));
    assert!(is_given(&mut at(FROM + 900, &times, &[])));
    assert!(!is_given(&mut at(FROM + 900, &times, &[1])), "it was used");
    // Its user came in time, and the fact is noted for later.
    let mut book = at(FROM + 800, &times, &[]);
    book.take(&by(1000, HeldPart::Whole), &world).unwrap();
    assert_eq!(book.begun().collect::<Vec<_>>(), [1]);
    // Too late: it is a hold like any other, also when it is released, and keeps no other share.
    let late = Toy {
        now: FROM + 900,
        ..Toy::new()
    };
    let mut book = at(FROM + 900, &times, &[]);
    book.take(&by(1000, share("a")), &late).unwrap();
    book.note_held();
    assert_eq!(book.begun().count(), 0);
    book.take(&by(1001, share("b")), &late).expect("it is given up");
}

#[test]
fn a_claim_that_its_user_held_before_counts_as_use() {
    let times = [time(1000, HeldPart::Whole, FROM, FROM + 2 * HOUR)];
    let mut book = at(FROM + HOUR, &times, &[]);
    let mut held = book.clone();
    held.times = NearTimes::default();
    held.take(&by(1000, share("a")), &Toy::new()).unwrap();
    book.claims = held.claims;
    assert!(book.take(&by(1001, share("b")), &Toy::new()).is_err());
    // The same, of claims that are still text.
    let mut scanned = record::scan(record::encode(&book)).unwrap();
    scanned.times = book.times.clone();
    assert!(scanned.take(&by(1001, share("b")), &Toy::new()).is_err());
}

#[test]
fn a_share_is_kept_and_the_others_are_given_as_far_as_all_fit() {
    let times = [time(1000, sized("a", "mps:600:50"), FROM, FROM + HOUR)];
    let world = Toy::new();
    let bounds: Bounds = "1000:100".parse().unwrap();
    let taken = |book: &mut Book, uid: u32, name: &str, promise: &str| {
        let ask = Ask {
            bounds,
            ..by(uid, sized(name, promise))
        };
        book.take(&ask, &world)
    };
    let mut book = at(FROM, &times, &[1]);
    assert!(matches!(
        taken(&mut book, 1001, "a", "mps:600:50"),
        Err(Refused::Reserved(_))
    ));
    taken(&mut book, 1001, "b", "mps:400:50").unwrap();
    let mut other = at(FROM, &times, &[1]);
    let said = taken(&mut other, 1001, "b", "mps:500:50");
    assert!(matches!(said, Err(Refused::Reserved(_))), "{said:?}");
    // Who held it before is counted once.
    let mut held = at(FROM - HOUR, &times, &[1]);
    taken(&mut held, 1002, "a", "mps:600:50").unwrap();
    let mut now = at(FROM, &times, &[1]);
    now.claims = held.claims;
    taken(&mut now, 1001, "b", "mps:400:50").unwrap();
    assert!(now.is_sound());
}

#[test]
fn in_its_time_the_user_comes_before_those_who_wait_and_gets_the_reserved_share_of_any() {
    let times = [time(1000, share("3"), FROM, FROM + HOUR)];
    let world = Toy::new();
    let any = |book: &mut Book, uid: u32| {
        let each = (0..5).map(|number| HeldShare {
            name: crate::types::ShareName::replica(number),
            promise: "1/10".parse().unwrap(),
        });
        let got = book.take_any(
            each,
            &Ask {
                holder: Holder::Container(container(&uid.to_string())),
                ..by(uid, HeldPart::Whole)
            },
            &world,
        );
        got.map(|share| share.name.to_string())
    };
    let waits = || {
        let wants = crate::ledger::WaitedFor {
            device: key("GPU-11111111"),
            shares: Vec::new(),
        };
        vec![Waiter::without_ticket([wants].into())]
    };
    let mut book = at(FROM, &times, &[]);
    book.leave_to(waits());
    assert!(any(&mut book, 1001).is_err());
    assert_eq!(any(&mut book, 1000).unwrap(), "3");
    let mut book = at(FROM, &times, &[]);
    for expected in ["0", "1", "2", "4"] {
        assert_eq!(
            any(&mut book, 2000 + expected.parse::<u32>().unwrap()).unwrap(),
            expected
        );
    }
    let refused = book.take_any(
        std::iter::once(HeldShare {
            name: "3".parse().unwrap(),
            promise: "1/10".parse().unwrap(),
        }),
        &Ask {
            holder: Holder::Container(container("x")),
            ..by(1001, HeldPart::Whole)
        },
        &world,
    );
    assert!(matches!(refused, Err(Refused::Reserved(_))), "{refused:?}");
}

#[test]
fn a_clock_that_is_not_set_after_a_boot_gives_nothing_away() {
    // Reserved at noon for 13:00, and made known at 12:50; then the machine boots in 1970.
    let mut calendar = Calendar::default();
    calendar.add(time(1000, HeldPart::Whole, FROM, FROM + HOUR));
    calendar.text(FROM - 600).unwrap();
    let gpu = "GPU-11111111".parse().unwrap();
    let is_given = |clock: u64, uptime: u64| {
        let near = NearTimes::at(&calendar, Some(&gpu), clock, uptime, || Ok(BTreeSet::new()));
        let mut book = book().with_times(near.unwrap());
        book.take(&by(1001, HeldPart::Whole), &Toy::new()).is_ok()
    };
    assert!(!is_given(100, 100) && !is_given(FROM - 700, 10_000));
    assert_eq!(calendar.is_behind(100), Some(FROM - 600));
    assert_eq!(calendar.is_behind(FROM), None);
    // A clock that is years ahead for a moment takes nothing from anybody: the file stays as it is.
    assert!(is_given(FROM + 1_000_000_000, 100));
    assert!(!is_given(FROM + 60, 200));
    // After a boot, the time for a user to come begins anew.
    assert!(!is_given(FROM + 1800, 899));
    assert!(is_given(FROM + 1800, 900));
}

#[test]
fn nothing_is_given_while_it_is_unknown_what_is_reserved() {
    let mut book = book();
    book.times.unreadable = Some("/var/lib/tranche/calendar.json: is damaged".into());
    let said = book
        .take(&by(1000, HeldPart::Whole), &Toy::new())
        .unwrap_err()
        .to_string();
    assert_eq!(
        said,
        "it is unknown what is reserved: /var/lib/tranche/calendar.json: is damaged"
    );
}

#[test]
fn a_reservation_that_follows_takes_nothing_of_the_one_before() {
    let times = [
        time(1000, HeldPart::Whole, FROM, FROM + HOUR),
        time(1001, HeldPart::Whole, FROM + HOUR, FROM + 2 * HOUR),
    ];
    let is_given = |clock: u64, uid: u32| {
        at(clock, &times, &[1, 2])
            .take(&by(uid, HeldPart::Whole), &Toy::new())
            .is_ok()
    };
    let near_both = FROM + HOUR - 600;
    assert!(is_given(near_both, 1000), "its time is not over");
    assert!(!is_given(near_both, 1001) && !is_given(near_both, 1002));
    let second = FROM + HOUR;
    assert!(!is_given(second, 1000) && is_given(second, 1001));
}

#[test]
fn what_was_taken_before_its_time_and_is_released_in_it_was_used() {
    let times = [time(1000, HeldPart::Whole, FROM, FROM + 2 * HOUR)];
    let held = |clock: u64| {
        let mut book = at(clock, &times, &[]);
        let near = std::mem::take(&mut book.times);
        book.take(&by(1000, HeldPart::Whole), &Toy::new()).unwrap();
        book.times = near;
        book.note_held();
        book.begun().collect::<Vec<_>>()
    };
    assert_eq!((held(FROM - 60), held(FROM)), (vec![], vec![1]));
}
