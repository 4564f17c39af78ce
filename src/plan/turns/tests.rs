//! The rule of turns, step by step and at random.

use super::{Handover, TurnDevice, TurnTimes};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

const TIMES: TurnTimes = TurnTimes {
    turn: Duration::from_secs(900),
    idle: Duration::from_secs(180),
};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn device(holders: &[char]) -> TurnDevice<char> {
    let mut device = TurnDevice::new(TIMES);
    holders.iter().for_each(|holder| device.enter(*holder));
    device
}

/// Makes the change that is due at `now`, and says who was resident and who is.
fn change(device: &mut TurnDevice<char>, now: Duration) -> Option<(Option<char>, Option<char>)> {
    let handover = device.next(now)?;
    device.complete(&handover, now);
    Some((handover.from, handover.to))
}

#[test]
fn the_first_who_calls_is_resident() {
    let mut device = device(&['a', 'b']);
    assert_eq!(device.due(), None);
    device.call(&'b', at(1));
    assert_eq!(change(&mut device, at(1)), Some((None, Some('b'))));
    assert_eq!(device.next(at(5000)), None, "nobody else wants it");
    assert_eq!(device.due(), None);
}

#[test]
fn who_works_gives_way_at_the_end_of_the_turn_and_comes_after_all_who_want() {
    let mut device = device(&['a', 'b', 'c']);
    for (holder, second) in [('a', 0), ('b', 1), ('c', 2)] {
        device.call(&holder, at(second));
        change(&mut device, at(second));
    }
    for second in 3..900 {
        device.work(at(second));
        assert_eq!(device.next(at(second)), None);
    }
    assert_eq!(change(&mut device, at(900)), Some((Some('a'), Some('b'))));
    assert_eq!(device.wants_since(&'a'), Some(at(900)));
    (901..1800).for_each(|second| device.work(at(second)));
    assert_eq!(change(&mut device, at(1800)), Some((Some('b'), Some('c'))));
    (1801..2700).for_each(|second| device.work(at(second)));
    assert_eq!(change(&mut device, at(2700)), Some((Some('c'), Some('a'))));
}

#[test]
fn who_does_nothing_gives_way_earlier_and_wants_nothing() {
    let mut device = device(&['a', 'b']);
    device.call(&'a', at(0));
    change(&mut device, at(0));
    device.work(at(100));
    device.call(&'b', at(110));
    assert_eq!(device.due(), Some(at(280)));
    assert_eq!(device.next(at(279)), None);
    assert_eq!(change(&mut device, at(280)), Some((Some('a'), Some('b'))));
    assert_eq!(device.wants_since(&'a'), None);
}

#[test]
fn who_is_put_aside_gives_way_and_calls_in_vain_until_resumed() {
    let mut device = device(&['a', 'b']);
    device.call(&'a', at(0));
    change(&mut device, at(0));
    device.put_aside(&'a');
    assert_eq!(device.due(), Some(at(0)));
    assert_eq!(change(&mut device, at(10)), Some((Some('a'), None)));
    device.call(&'a', at(11));
    assert_eq!(device.next(at(11)), None);
    device.resume(&'a', at(20));
    assert_eq!(change(&mut device, at(20)), Some((None, Some('a'))));
}

#[test]
fn a_change_that_fails_is_tried_again_less_and_less_often() {
    let mut device = device(&['a', 'b']);
    device.call(&'a', at(0));
    change(&mut device, at(0));
    device.call(&'b', at(0));
    let mut now = at(180);
    let mut pauses = Vec::new();
    for _ in 0..9 {
        assert!(device.next(now).is_some());
        device.fail(now);
        assert_eq!(device.next(now), None);
        let due = device.due().unwrap();
        pauses.push((due - now).as_secs());
        now = due;
    }
    assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 900, 900]);
    assert_eq!(device.resident(), Some(&'a'));
    change(&mut device, now);
    assert_eq!(device.resident(), Some(&'b'));
}

#[test]
fn a_claim_that_ends_leaves_the_device_to_the_next() {
    let mut device = device(&['a', 'b', 'c']);
    device.call(&'a', at(0));
    change(&mut device, at(0));
    device.call(&'b', at(1));
    device.call(&'c', at(2));
    let handover = device.next(at(181)).unwrap();
    device.leave(&'b');
    device.complete(&handover, at(182));
    assert_eq!(
        device.resident(),
        None,
        "the one that was to become resident has ended meanwhile"
    );
    assert_eq!(change(&mut device, at(182)), Some((None, Some('c'))));
    device.leave(&'c');
    assert_eq!(device.resident(), None);
}

#[test]
fn who_gives_way_comes_after_one_who_has_begun_to_want_it_at_the_same_time() {
    let mut device = device(&['a', 'b', 'c']);
    device.call(&'a', at(0));
    change(&mut device, at(0));
    device.call(&'b', at(10));
    device.work(at(899));
    device.call(&'c', at(900));
    assert_eq!(change(&mut device, at(900)), Some((Some('a'), Some('b'))));
    assert_eq!(device.wants_since(&'a'), Some(at(900)));
    assert_eq!(change(&mut device, at(1080)), Some((Some('b'), Some('c'))));
}

/// What happens in a second.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// The holder calls the driver, and has work for so many seconds on the device.
    Call(usize, u64),
    Leave(usize),
    Enter(usize),
    PutAside(usize),
    Resume(usize),
    Nothing(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let holder = 0..5_usize;
    let event = prop_oneof![
        6 => (holder.clone(), 1..4000_u64).prop_map(|(holder, seconds)| Event::Call(holder, seconds)),
        1 => holder.clone().prop_map(Event::Leave),
        1 => holder.clone().prop_map(Event::Enter),
        1 => holder.clone().prop_map(Event::PutAside),
        1 => holder.prop_map(Event::Resume),
        6 => (1..1500_u64).prop_map(Event::Nothing),
    ];
    prop::collection::vec(event, 1..60)
}

/// What is known of those who want the device: since when, and how many were ahead then.
#[derive(Debug, Default)]
struct Waiters(BTreeMap<usize, (u64, u32)>);

proptest! {
    /// Each second is looked at. Changes take no time here and never fail.
    #[test]
    fn nobody_waits_longer_than_the_turns_ahead(events in events()) {
        let mut device = TurnDevice::new(TIMES);
        (0..5).for_each(|holder| device.enter(holder));
        let (mut work, mut aside) = ([0_u64; 5], [false; 5]);
        let mut waiters = Waiters::default();
        let (mut second, mut last_change) = (0, None);
        for event in events {
            let mut seconds = 1;
            match event {
                Event::Call(holder, long) => work[holder] = long,
                Event::Leave(holder) => { device.leave(&holder); work[holder] = 0; aside[holder] = false; }
                Event::Enter(holder) => device.enter(holder),
                Event::PutAside(holder) => { device.put_aside(&holder); aside[holder] = true; }
                Event::Resume(holder) => { device.resume(&holder, at(second)); aside[holder] = false; }
                Event::Nothing(long) => seconds = long,
            }
            for _ in 0..seconds {
                for (holder, left) in work.iter_mut().enumerate().filter(|(_, left)| **left > 0) {
                    device.call(&holder, at(second));
                    *left -= u64::from(device.resident() == Some(&holder));
                }
                let due = device.due();
                if let Some(handover) = device.next(at(second)) {
                    prop_assert!(due.is_some_and(|due| due <= at(second)), "{due:?} at {second}");
                    prop_assert_eq!(handover.from.as_ref(), device.resident());
                    prop_assert_ne!(&handover.from, &handover.to);
                    // A person may put one aside at any time.
                    let works = |holder: &Option<usize>| holder.is_some_and(|holder| work[holder] > 0 && !aside[holder]);
                    if let (true, Some((before, pair))) = (works(&handover.from) && works(&handover.to), &last_change) {
                        let is_back = *pair == Handover { from: handover.to, to: handover.from };
                        prop_assert!(!is_back || second - before >= TIMES.turn.as_secs(), "at {second}");
                    }
                    last_change = handover.to.is_some().then(|| (second, handover.clone()));
                    device.complete(&handover, at(second));
                } else {
                    prop_assert!(due.is_none_or(|due| due > at(second)), "{due:?} at {second}");
                }
                let mut wanting: Vec<_> = device.waiting().map(|(wish, holder)| (wish, *holder)).collect();
                wanting.sort_unstable();
                waiters.0.retain(|holder, _| wanting.iter().any(|(_, other)| other == holder));
                let resident = u32::from(device.resident().is_some());
                for (before, (_, holder)) in wanting.into_iter().enumerate() {
                    let ahead = resident + before as u32;
                    let (since, ahead) = *waiters.0.entry(holder).or_insert((second, ahead));
                    let waited = Duration::from_secs(second - since);
                    prop_assert!(waited <= TIMES.turn * ahead.max(1), "{holder} has waited for {waited:?} behind {ahead}");
                }
                second += 1;
            }
        }
    }
}
