use super::*;
use std::fs;
use std::sync::Barrier;
use tranche_core::ledger::ReservedTime;
use tranche_core::types::HeldPart;

fn time(uid: u32, from: u64) -> ReservedTime {
    ReservedTime {
        id: 0,
        uid,
        who: "ann".into(),
        device: "GPU-8188460b".parse().unwrap(),
        part: HeldPart::Whole,
        label: "gpu 0".into(),
        from,
        until: from + 3600,
        before: 1800,
        no_show: 900,
        made: 0,
        zone: "UTC".into(),
        offsets: [0, 0],
        reason: None,
    }
}

#[test]
fn people_at_once_lose_nothing_of_each_other_and_get_one_time_once() {
    let state = tempfile::tempdir().unwrap();
    let (path, start) = (state.path(), Barrier::new(8));
    let soon = clock() + 3600;
    let got: usize = std::thread::scope(|threads| {
        let start = &start;
        let threads: Vec<_> = (0..8)
            .map(|uid| {
                threads.spawn(move || {
                    start.wait();
                    // All want the same hours, and each looks whether they are taken, as the rule does.
                    let take = |hour: u64| {
                        change(path, |calendar, _| {
                            let from = soon + hour * 3600;
                            match calendar
                                .times
                                .iter()
                                .any(|other| other.is_at_the_time_of(from, from + 3600))
                            {
                                true => Err(Error::failed("hour", "is taken")),
                                false => Ok(calendar.add(time(uid, from)).id),
                            }
                        })
                    };
                    (0..10).filter(|hour| take(*hour).is_ok()).count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let all = Calendar::read(path).unwrap().times;
    assert_eq!((got, all.len()), (10, 10));
    let mut ids: Vec<u32> = all.iter().map(|time| time.id).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=10).collect::<Vec<u32>>());
}

#[test]
fn a_file_that_cannot_be_used_is_changed_by_nobody_but_who_empties_it() {
    let state = tempfile::tempdir().unwrap();
    let add = || change(state.path(), |calendar, now| Ok(calendar.add(time(1, now + 10)).id));
    assert_eq!(add().unwrap(), 1);
    let file = Calendar::file(state.path());
    let good = fs::read_to_string(&file).unwrap();
    for (text, why) in [
        ("{", "is damaged"),
        ("{\"version\":9}", "was written by a newer tranche"),
    ] {
        fs::write(&file, text).unwrap();
        let said = tranche_core::error::line(&add().unwrap_err());
        assert!(
            said.contains(why) && said.contains("tranche reserve cancel all"),
            "{said}"
        );
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        assert_eq!(empty(state.path()).unwrap(), 0);
        assert!(!file.exists());
    }
    fs::write(&file, good).unwrap();
    assert_eq!(empty(state.path()).unwrap(), 1);
    assert_eq!(add().unwrap(), 2, "a number is not given again");
    // An error leaves it as it was.
    let before = fs::read_to_string(&file).unwrap();
    let failed: Result<()> = change(state.path(), |calendar, _| {
        calendar.times.clear();
        Err(Error::failed("x", "y"))
    });
    failed.unwrap_err();
    assert_eq!(fs::read_to_string(&file).unwrap(), before);
}

#[test]
fn the_calendar_does_not_grow_without_end() {
    let state = tempfile::tempdir().unwrap();
    let fill = |more: usize| {
        change(state.path(), |calendar, now| {
            (0..more).for_each(|_| drop(calendar.add(time(1, now))));
            Ok(())
        })
    };
    fill(MOST_RESERVED).unwrap();
    let said = fill(1).unwrap_err().to_string();
    assert!(said.contains("no more are kept"), "{said}");
    assert_eq!(Calendar::read(state.path()).unwrap().times.len(), MOST_RESERVED);
}

#[test]
fn a_clock_that_is_behind_the_calendar_changes_nothing() {
    let state = tempfile::tempdir().unwrap();
    let mut ahead = Calendar::default();
    ahead.add(time(1, clock() + 1000));
    let text = ahead.text(clock() + 600).unwrap();
    fs::create_dir(Calendar::file(state.path()).parent().unwrap()).unwrap();
    fs::write(Calendar::file(state.path()), text).unwrap();
    let said = change(state.path(), |_, _| Ok(())).unwrap_err().to_string();
    assert!(
        said.starts_with("clock: it says ") && said.contains("the calendar was changed at"),
        "{said}"
    );
    empty(state.path()).unwrap();
    change(state.path(), |_, _| Ok(())).unwrap();
}

#[test]
fn a_zone_is_a_name_and_an_offset() {
    for (zone, offsets, is_ok) in [
        ("Europe/Berlin", [3600, 7200], true),
        ("America/Argentina/Buenos_Aires", [-10_800; 2], true),
        ("UTC+01:00", [3600; 2], true),
        ("", [0; 2], false),
        ("a\nb", [0; 2], false),
        ("\u{1b}[2J", [0; 2], false),
        ("UTC", [i32::MIN, 0], false),
        ("UTC", [0, 100_000], false),
    ] {
        assert_eq!(check_zone(zone, offsets).is_ok(), is_ok, "{zone} {offsets:?}");
    }
}
