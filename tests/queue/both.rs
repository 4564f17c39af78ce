//! Root and users in one order, and users who ask anew.

use super::*;

/// Requests with their numbers, of which the odd ones are of the user of that number.
fn join(queue: &mut FairQueue<u32>, requesters: &[(RequestNumber, Requester<u32>)]) {
    for (number, requester) in requesters {
        queue.join(*number, *requester);
    }
}

fn last(account: u32) -> Requester<u32> {
    let served = Served::Last;
    Requester::User { account, served }
}

#[test]
fn root_comes_before_users_and_where_it_waits_after_those_who_came_before() {
    let mut used = UsedLately::new(seconds(1000));
    used.add(1, 500.0, seconds(1));
    used.add(2, 100.0, seconds(1));
    for (root_waits, order) in [
        (false, [3, 6, 5, 2, 1, 7, 4]),
        // The user who came after root comes after it, although those who came before have held more.
        (true, [2, 1, 3, 5, 6, 7, 4]),
    ] {
        let mut queue = FairQueue::new(times(10, 100), 1, root_waits);
        let requesters = [
            (1, user_of(1)),
            (2, user_of(2)),
            (3, Requester::Root),
            (4, last(4)),
            (5, user_of(5)),
            (6, Requester::Root),
            (7, user_of(1)),
        ];
        join(&mut queue, &requesters);
        assert_eq!(queue.order(&used, seconds(1)), order, "{root_waits}");
    }
}

fn by(requester: Requester<u32>, of: &[usize], number: usize, hold: u64) -> Wanted {
    Wanted {
        requester,
        ..wanted(0, of, number, hold)
    }
}

/// The steps after which each request is served: a queue with these devices free at `free_from`, held until then.
fn served_at(root_waits: bool, times: QueueTimes, free_from: &[u64], arrivals: Vec<(u64, Wanted)>) -> Vec<(u64, u64)> {
    let mut world = World::new(free_from.len());
    world.held = free_from.iter().map(|end| Some((None, seconds(*end)))).collect();
    let mut queue = FairQueue::new(times, free_from.len(), root_waits);
    let mut used = UsedLately::new(seconds(10_000));
    used.add(1, 1000.0, seconds(1));
    let mut watch = Watch::new(times, seconds(1_000_000));
    for second in 1..200 {
        let now = arrivals.iter().filter(|(number, _)| *number == second);
        let now = now.cloned().collect();
        world.step(seconds(1), &mut queue, &mut used, now, false);
        watch.look(seconds(1), &queue, &used, &world);
    }
    world
        .served
        .iter()
        .map(|served| (served.number, served.at.as_secs()))
        .collect()
}

/// A user who has held much waits, then root, then a user who has held nothing. By the order of users the last one
/// comes first, and by arrival root does: two orders make a circle in which nobody is served.
#[test]
fn a_user_before_root_and_one_after_it_do_not_wait_for_one_another() {
    let one = |requester| by(requester, &[0], 1, 10);
    let arrivals = vec![(1, one(user_of(1))), (2, one(Requester::Root)), (3, one(user_of(2)))];
    let served = served_at(true, times(30, 100), &[5], arrivals.clone());
    assert_eq!(served, [(1, 5), (2, 15), (3, 25)]);
    assert_eq!(
        served_at(false, times(30, 100), &[5], arrivals),
        [(2, 5), (3, 15), (1, 25)]
    );
}

#[test]
fn a_user_holds_root_up_only_while_something_is_kept_and_only_where_root_waits() {
    let never = 1_000_000;
    let free_from = [1, 1, never, never];
    let all = [0, 1, 2, 3];
    let arrivals = vec![(2, by(user_of(1), &all, 3, 10)), (4, by(Requester::Root, &all, 1, 500))];
    assert_eq!(served_at(true, times(6, 100), &free_from, arrivals.clone()), [(4, 8)]);
    assert_eq!(served_at(false, times(6, 100), &free_from, arrivals), [(4, 4)]);
}

#[test]
fn root_that_passes_users_makes_nothing_in_vain_for_them() {
    let mut world = World::new(2);
    world.held = vec![None, Some((None, seconds(1000)))];
    let mut queue = FairQueue::new(times(6, 100), 2, false);
    let mut used = UsedLately::new(seconds(1000));
    let mut step = |queue: &mut FairQueue<u32>, arrivals| world.step(seconds(1), queue, &mut used, arrivals, false);
    step(&mut queue, vec![(1, wanted(1, &[0, 1], 2, 10))]);
    assert_eq!(queue.kept(seconds(1)), [1]);
    step(&mut queue, vec![(2, by(Requester::Root, &[0], 1, 10))]);
    assert_eq!(
        (queue.in_vain(1), queue.kept(seconds(2))),
        (0, vec![]),
        "root has the device"
    );
}

/// The user asks for three of four devices, of which one is free, hangs up before that was kept in vain, and asks anew.
#[test]
fn who_asks_anew_gains_nothing() {
    let all = [0, 1, 2, 3];
    let never = Some((None, seconds(1_000_000)));
    for joins_before_leaving in [false, true] {
        let mut world = World::new(4);
        world.held = vec![None, never, never, never];
        let mut queue = FairQueue::new(times(6, 100), 4, false);
        let mut used = UsedLately::new(seconds(1000));
        used.add(2, 50.0, seconds(1));
        let of_bob = 1;
        for second in 1..100 {
            let mut arrivals = Vec::new();
            if second == 2 {
                arrivals.push((of_bob, wanted(2, &[0], 1, 1000)));
            }
            let asks_anew = second % 5 == 1;
            let earlier = (second > 1 && asks_anew).then(|| 100 + second - 5);
            if let Some(earlier) = earlier.filter(|_| !joins_before_leaving) {
                world.hang_up(earlier, &mut queue);
            }
            if asks_anew {
                arrivals.push((100 + second, wanted(1, &all, 3, 10)));
            }
            world.step(seconds(1), &mut queue, &mut used, arrivals, false);
            if let Some(earlier) = earlier.filter(|_| joins_before_leaving) {
                world.hang_up(earlier, &mut queue);
            }
        }
        let served: Vec<(u64, Duration)> = world.served.iter().map(|served| (served.number, served.at)).collect();
        assert_eq!(
            served,
            [(of_bob, seconds(7))],
            "joins before it leaves: {joins_before_leaving}"
        );
    }
}

/// One of two devices is kept for the first user. For a second the other user, who has held less by then, comes first.
#[test]
fn who_is_not_the_first_for_a_moment_gets_no_new_time() {
    let mut world = World::new(2);
    world.held = vec![Some((None, seconds(1_000_000))), None];
    let mut queue = FairQueue::new(times(6, 100), 2, false);
    let mut used = UsedLately::new(seconds(1_000_000));
    used.add(2, 50.0, seconds(0));
    let mut kept = Vec::new();
    for second in 1..12 {
        let arrivals = match second {
            1 => vec![(1, wanted(1, &[0, 1], 2, 10)), (2, wanted(2, &[0], 1, 10))],
            _ => Vec::new(),
        };
        match second {
            4 => used.add(1, 100.0, seconds(4)),
            5 => used.add(2, 100.0, seconds(5)),
            _ => {}
        }
        world.step(seconds(1), &mut queue, &mut used, arrivals, false);
        kept.push(queue.kept(world.now).contains(&1));
    }
    let until = |from: usize, to: usize| kept[from - 1..to].iter().all(|is_kept| *is_kept);
    assert!(until(1, 3) && until(5, 6), "{kept:?}");
    assert!(!kept[3] && !kept[6..].contains(&true), "{kept:?}");
}

/// What happens in a second of a random day of both kinds.
#[derive(Debug, Clone)]
enum Event {
    Asks(Wanted),
    /// The waiting request at this place of the order of arrival hangs up, and asks anew for the same at once.
    AsksAnew(usize),
    /// It hangs up.
    HangsUp(usize),
}

fn events() -> impl proptest::strategy::Strategy<Value = Vec<(u64, Event)>> {
    use proptest::prelude::prop_oneof;
    use proptest::strategy::{Just, Strategy};
    let user = 0..5_u32;
    let requester = prop_oneof![
        6 => user.clone().prop_map(user_of),
        1 => user.prop_map(last),
        3 => Just(Requester::Root),
    ];
    let of = prop::collection::btree_set(0..4_usize, 1..=4);
    let asks = (requester, of, 1..=4_usize, 1..60_u64).prop_map(|(requester, of, number, hold)| {
        let of: Vec<usize> = of.into_iter().collect();
        Event::Asks(by(requester, &of, number.min(of.len()), hold))
    });
    let event = prop_oneof![
        6 => asks,
        2 => (0..8_usize).prop_map(Event::AsksAnew),
        1 => (0..8_usize).prop_map(Event::HangsUp),
    ];
    prop::collection::vec((0..300_u64, event), 1..80)
}

/// Where root's place in the order is as the rule says: after users who came before it if it waits, and before all
/// others.
fn root_has_its_place(order: &[RequestNumber], world: &World, root_waits: bool, queue: &FairQueue<u32>) -> bool {
    let place = |number: RequestNumber| order.iter().position(|other| *other == number);
    let requester = |number: RequestNumber| world.waiting[&number].requester;
    order
        .iter()
        .filter(|number| requester(**number) == Requester::Root)
        .all(|root| {
            order.iter().all(|user| match requester(*user) {
                Requester::User { served, .. } => {
                    let is_last = served == Served::Last && !queue.is_locked(*user);
                    (place(*user) < place(*root)) == (root_waits && !is_last && user < root)
                }
                Requester::Root => true,
            })
        })
}

proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(128))]

    /// The invariants that [`Watch`] checks hold for root and users with any of these events. When nobody asks any
    /// more, everybody is served.
    #[test]
    fn the_rule_holds_for_root_and_users(events in events(), root_waits in prop::bool::ANY) {
        let times = times(5, 60);
        let mut world = World::new(4);
        let mut queue = FairQueue::new(times, 4, root_waits);
        let mut used = UsedLately::new(seconds(200));
        // Root can delay one that is the first of the users, so I3 and I4 are not asked for.
        let mut watch = Watch::new(times, seconds(1_000_000));
        let mut next = 0;
        for second in 0..8_000_u64 {
            let mut arrivals: Vec<(RequestNumber, Wanted)> = Vec::new();
            for (_, event) in events.iter().filter(|(at, _)| *at == second) {
                let found = |at: usize| {
                    let found = world.waiting.iter().nth(at);
                    found.map(|(number, wanted)| (*number, wanted.clone()))
                };
                let (left, asks) = match event {
                    Event::Asks(wanted) => (None, Some(wanted.clone())),
                    Event::AsksAnew(at) => found(*at).unzip(),
                    Event::HangsUp(at) => (found(*at).map(|(number, _)| number), None),
                };
                if let Some(left) = left {
                    world.hang_up(left, &mut queue);
                }
                arrivals.extend(asks.map(|wanted| (next, wanted)));
                next += 1;
            }
            world.step(seconds(1), &mut queue, &mut used, arrivals, true);
            watch.look(seconds(1), &queue, &used, &world);
            let order = queue.order(&used, world.now);
            prop_assert!(root_has_its_place(&order, &world, root_waits, &queue), "{order:?}");
            if second > 400 && world.waiting.is_empty() {
                return Ok(());
            }
        }
        prop_assert!(false, "somebody waits for ever");
    }
}
