//! The rule who of those who wait is next, on made-up days.

mod both;
mod month;

use proptest::prelude::{prop, prop_assert, proptest};
use std::collections::BTreeSet;
use std::time::Duration;
use tranche_plan::queue::{FairQueue, QueueTimes, RequestNumber, Requester, Served, UsedLately};
use tranche_test_support::queue::{Wanted, Watch, World, request_for_both, user_of};

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn wanted(user: u32, of: &[usize], number: usize, hold: u64) -> Wanted {
    Wanted {
        requester: user_of(user),
        of: of.to_vec(),
        number,
        hold: seconds(hold),
    }
}

fn times(reserve_for: u64, reserve_at_most: u64) -> QueueTimes {
    QueueTimes {
        reserve_for: seconds(reserve_for),
        reserve_at_most: seconds(reserve_at_most),
    }
}

#[test]
fn a_request_for_two_devices_is_served_by_doubling_and_never_by_a_fixed_time() {
    let fixed = request_for_both(times(10, 10));
    assert_eq!(fixed.served, None);
    // It has cost more than its service would have.
    assert!(fixed.free > 500, "{fixed:?}");
    let doubled = request_for_both(times(10, 3600));
    assert!(
        doubled.served.is_some_and(|served| (200..=400).contains(&served)),
        "{doubled:?}"
    );
    // 10 s, 20 s and 40 s in vain, and the last time until the second device is free.
    assert!(doubled.free < 10 + 20 + 40 + 80 + 10, "{doubled:?}");
}

#[test]
fn who_has_held_less_comes_first_and_some_are_served_last() {
    let mut queue = FairQueue::new(times(10, 100), 1, false);
    let mut used = UsedLately::new(seconds(1000));
    let now = seconds(5000);
    used.add(1, 300.0, now);
    used.add(2, 100.0, now);
    let last = Served::Last;
    for (number, account, served) in [
        (10, 1, Served::Usual),
        (11, 2, Served::Usual),
        (12, 3, Served::Usual),
        (13, 4, last),
        (14, 2, last),
        (15, 1, Served::Usual),
    ] {
        queue.join(number, Requester::User { account, served });
    }
    // Among those who are served last, arrival counts alone.
    assert_eq!(queue.order(&used, now), [12, 11, 10, 15, 13, 14]);
    // Half of it counts after the half-life, and others that begin to hold come behind.
    let later = now + seconds(1000);
    assert_eq!((used.of(1, later), used.of(9, later)), (150.0, 0.0));
    used.add(3, 151.0, later);
    assert_eq!(queue.order(&used, later), [11, 10, 15, 12, 13, 14]);
    // A clock that goes back by a year changes nothing.
    assert_eq!(used.of(1, Duration::ZERO), 300.0);
    assert_eq!(used.amounts(later + seconds(20_000)), []);
}

#[test]
fn a_request_that_was_overtaken_often_is_served_before_those_who_have_held_less() {
    let mut world = World::new(1);
    let mut queue = FairQueue::new(times(0, 0), 1, false);
    let mut used = UsedLately::new(seconds(1_000_000));
    used.add(0, 1e9, seconds(1));
    world.held = vec![Some((Some(99), seconds(10)))];
    for second in 1..1000 {
        let mut arrivals = Vec::new();
        if second == 1 {
            arrivals.push((0, wanted(0, &[0], 1, 10)));
        }
        // Always a new user, who has held nothing.
        if world.waiting.len() < 4 {
            arrivals.push((second, wanted(u32::try_from(100 + second).unwrap(), &[0], 1, 10)));
        }
        world.step(seconds(1), &mut queue, &mut used, arrivals, true);
        if !world.waiting.contains_key(&0) {
            let order: Vec<RequestNumber> = world.served.iter().map(|served| served.number).collect();
            assert_eq!(
                (order.len(), order.last()),
                (4, Some(&0)),
                "three were served before it"
            );
            return;
        }
    }
    panic!("it was never served");
}

#[test]
fn who_waits_for_other_devices_is_not_held_up() {
    let mut world = World::new(4);
    let mut queue = FairQueue::new(times(1000, 1000), 4, false);
    let mut used = UsedLately::new(seconds(1000));
    world.held = vec![Some((Some(9), seconds(500))), None, Some((Some(9), seconds(700))), None];
    let arrivals = vec![
        (1, wanted(1, &[0, 1], 2, 10)),
        (2, wanted(2, &[2, 3], 2, 10)),
        (3, wanted(3, &[1, 3], 1, 10)),
    ];
    world.step(seconds(1), &mut queue, &mut used, arrivals, true);
    // Device 1 is kept for the first, and device 3 for the second, which competes with nobody ahead.
    assert_eq!(world.served.len(), 0);
    world.step(
        seconds(1),
        &mut queue,
        &mut used,
        vec![(4, wanted(4, &[3], 1, 10))],
        true,
    );
    assert_eq!(world.served.len(), 0);
    while world.waiting.len() > 2 {
        world.step(seconds(1), &mut queue, &mut used, Vec::new(), true);
    }
    assert_eq!(
        (world.served[0].wanted.requester, world.served[0].at),
        (user_of(1), seconds(500))
    );
}

/// A random day of a small host.
#[derive(Debug, Clone)]
struct Day {
    devices: usize,
    requests: Vec<(u64, Wanted)>,
}

fn days() -> impl proptest::strategy::Strategy<Value = Day> {
    use proptest::strategy::Strategy;
    let request = (
        0..400_u64,
        0..6_u32,
        prop::collection::btree_set(0..4_usize, 1..=4),
        1..=4_usize,
        1..60_u64,
    );
    prop::collection::vec(request, 1..60).prop_map(|requests| {
        let request = |(at, user, of, number, hold): (u64, u32, BTreeSet<usize>, usize, u64)| {
            let of: Vec<usize> = of.into_iter().collect();
            let number = number.min(of.len());
            (at, wanted(user, &of, number, hold))
        };
        Day {
            devices: 4,
            requests: requests.into_iter().map(request).collect(),
        }
    })
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]

    /// With holds of at most 60 s and things kept free for as long, everybody is served; nothing is free that a request
    /// could have, unless it is kept for another one; and nothing is kept for longer than the rule says.
    #[test]
    fn the_rule_holds_on_random_days(day in days()) {
        let times = times(5, 60);
        let mut world = World::new(day.devices);
        let mut queue = FairQueue::new(times, day.devices, false);
        let mut used = UsedLately::new(seconds(200));
        let mut watch = Watch::new(times, seconds(60));
        for second in 0..20_000_u64 {
            let arrivals: Vec<(RequestNumber, Wanted)> = (0..)
                .zip(&day.requests)
                .filter(|(_, (at, _))| *at == second)
                .map(|(number, (_, wanted))| (number, wanted.clone()))
                .collect();
            world.step(seconds(1), &mut queue, &mut used, arrivals, true);
            if second > 400 && world.waiting.is_empty() {
                break;
            }
            watch.look(seconds(1), &queue, &used, &world);
        }
        prop_assert!(world.waiting.is_empty(), "somebody waits for ever");
        prop_assert!(queue.is_empty());
        prop_assert!(world.served.len() == day.requests.len());
    }

    /// A locked request that is the first is overtaken a bounded number of times.
    #[test]
    fn who_waits_for_everything_is_overtaken_a_bounded_number_of_times(holds in prop::collection::vec(1..60_u64, 40..200)) {
        let times = times(5, 60);
        let mut world = World::new(4);
        let mut queue = FairQueue::new(times, 4, false);
        let mut used = UsedLately::new(seconds(1000));
        let all = [0, 1, 2, 3];
        // It has held much, so that it is the last until it is locked.
        used.add(0, 1e9, seconds(1));
        let mut after_lock = None;
        let mut watch = Watch::new(times, seconds(60));
        for second in 0..20_000_u64 {
            let mut arrivals = Vec::new();
            if second == 10 {
                arrivals.push((0, wanted(0, &all, 4, 10)));
            }
            let hold = holds[usize::try_from(second).unwrap() % holds.len()];
            if world.waiting.len() < 8 {
                arrivals.push((1 + second, wanted(u32::try_from(1 + second).unwrap(), &all, 1, hold)));
            }
            world.step(seconds(1), &mut queue, &mut used, arrivals, false);
            watch.look(seconds(1), &queue, &used, &world);
            let passed = world.served.len();
            if queue.is_locked(0) {
                after_lock.get_or_insert(passed);
            }
            if second > 10 && !world.waiting.contains_key(&0) {
                let overtaken = passed - 1 - after_lock.unwrap_or(passed - 1);
                // After each time in vain, every device may be given to another one: log2(60 / 5) + 1 times.
                prop_assert!(overtaken <= 4 * 5, "{overtaken}");
                return Ok(());
            }
        }
        prop_assert!(false, "it was never served");
    }
}
