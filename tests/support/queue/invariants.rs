//! The invariants of the rule, checked while a world goes on. The benchmark `queue` checks them too.

use super::world::World;
use std::collections::BTreeMap;
use std::time::Duration;
use tranche_plan::queue::{FairQueue, Grants, QueueTimes, RequestNumber, Requester, UsedLately};

/// What was seen until now.
pub struct Watch {
    times: QueueTimes,
    longest_hold: Duration,
    /// For how long each free device is kept for each user, without a break.
    kept: BTreeMap<(u32, usize), Kept>,
    /// How often something was kept in vain for each request that waits.
    in_vain: BTreeMap<RequestNumber, u32>,
    /// The locked request that is the first.
    first: Option<First>,
}

#[derive(Clone)]
struct Kept {
    lasted: Duration,
    /// The requests for which it is kept, and how often that was in vain before for each.
    for_requests: BTreeMap<RequestNumber, u32>,
}

struct First {
    number: RequestNumber,
    since: Duration,
    /// How often something was kept for it in vain before it was the first.
    in_vain: u32,
}

impl Watch {
    /// For a world in which nothing is held for longer than `longest_hold`.
    pub fn new(times: QueueTimes, longest_hold: Duration) -> Self {
        Self {
            times,
            longest_hold,
            kept: BTreeMap::new(),
            in_vain: BTreeMap::new(),
            first: None,
        }
    }

    /// Looks at the world after a step. Panics if the rule was broken.
    pub fn look(&mut self, step: Duration, queue: &FairQueue<u32>, used: &UsedLately<u32>, world: &World) {
        let order = queue.order(used, world.now);
        is_one_order(&order, world);
        nothing_is_free_without_a_reason(&order, queue, world);
        self.is_kept_in_time(step, queue, world);
        self.first_is_served(queue, used, world.now);
    }

    /// I2.
    fn is_kept_in_time(&mut self, step: Duration, queue: &FairQueue<u32>, world: &World) {
        let mut kept: BTreeMap<(u32, usize), Kept> = BTreeMap::new();
        for number in queue.kept(world.now) {
            let Some(user) = world.waiting[&number].requester.user() else {
                panic!("kept for root: {number}");
            };
            for device in world.free(number) {
                let none = Kept {
                    lasted: step,
                    for_requests: BTreeMap::new(),
                };
                let entry = kept.entry((user, device)).or_insert(none);
                entry.for_requests.insert(number, queue.in_vain(number));
            }
        }
        for (place, now) in &mut kept {
            // It was in vain: others have had some of it.
            let is_new_time = world.waiting.iter().any(|(number, wanted)| {
                let before = self.in_vain.get(number).copied().unwrap_or_default();
                let is_of_it = wanted.requester.user() == Some(place.0) && wanted.of.contains(&place.1);
                is_of_it && queue.in_vain(*number) > before
            });
            let before = self.kept.get(place).filter(|_| !is_new_time);
            // Of a user whose request was served for which it was kept, it was not in vain.
            let was_served = |before: &&Kept| {
                let mut served = world.served.iter().rev().take_while(|served| served.at == world.now);
                served.any(|served| before.for_requests.contains_key(&served.number))
            };
            if let Some(before) = before.filter(|before| !was_served(before)) {
                now.lasted += before.lasted;
            }
            let in_vain = now.for_requests.values().copied().max().unwrap_or_default();
            // It is looked at after each step: what ends within a step is free until its end.
            assert!(
                now.lasted < self.times.kept_for(in_vain) + step,
                "I2: device {} is kept for user {} for {:?}",
                place.1,
                place.0,
                now.lasted
            );
        }
        self.kept = kept;
        let waiting = world.waiting.keys();
        self.in_vain = waiting.map(|number| (*number, queue.in_vain(*number))).collect();
    }

    /// I3 and I4, which hold if nothing is held for longer than things are kept at most.
    fn first_is_served(&mut self, queue: &FairQueue<u32>, used: &UsedLately<u32>, now: Duration) {
        let times = self.times;
        let longest = (0..64).find(|in_vain| times.kept_for(*in_vain) == times.reserve_at_most);
        let Some(most) = longest.filter(|_| self.longest_hold <= times.reserve_at_most) else {
            return;
        };
        let first = queue.order(used, now).first().copied();
        let Some(number) = first.filter(|number| queue.is_locked(*number)) else {
            self.first = None;
            return;
        };
        if self.first.as_ref().is_none_or(|first| first.number != number) {
            let in_vain = queue.in_vain(number);
            self.first = Some(First {
                number,
                since: now,
                in_vain,
            });
        }
        let Some(first) = &self.first else { return };
        let in_vain = queue.in_vain(number) - first.in_vain;
        assert!(in_vain <= most, "I3: in vain {in_vain} times for request {number}");
        // Each time, something is free after the longest hold at the latest, and is kept for as long as the rule says.
        let rounds = (0..=most).map(|round| times.kept_for(round) + self.longest_hold);
        let bound: Duration = rounds.sum();
        assert!(now - first.since <= bound, "I4: request {number} is not served");
    }
}

/// I5: each has one place, root's requests by arrival.
fn is_one_order(order: &[RequestNumber], world: &World) {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    assert!(sorted.iter().eq(world.waiting.keys()), "I5: {order:?}");
    let of_root = order.iter().filter(|number| is_of_root(world, **number));
    assert!(of_root.is_sorted(), "I5: root's requests come by arrival: {order:?}");
}

fn is_of_root(world: &World, number: RequestNumber) -> bool {
    world.waiting[&number].requester == Requester::Root
}

/// I1 and I6, and that no two requests for which something is kept want the same.
fn nothing_is_free_without_a_reason(order: &[RequestNumber], queue: &FairQueue<u32>, world: &World) {
    let kept = queue.kept(world.now);
    let hold_root_up = queue.hold_root_up();
    for (at, number) in order.iter().enumerate() {
        let ahead = order.iter().take(at);
        let of_root = ahead.filter(|other| is_of_root(world, **other));
        let left_to: Vec<&RequestNumber> = match is_of_root(world, *number) {
            // Of users, those who came before it hold it up.
            true => hold_root_up
                .iter()
                .filter(|user| *user < number)
                .chain(of_root)
                .collect(),
            false => kept.iter().filter(|kept| *kept != number).chain(of_root).collect(),
        };
        let is_left = |device: &usize| left_to.iter().any(|other| world.waiting[other].of.contains(device));
        let open = world.free(*number).iter().filter(|device| !is_left(device)).count();
        assert!(
            open < world.waiting[number].number,
            "I1: request {number} could be served at {:?}",
            world.now
        );
    }
    for number in hold_root_up.iter().filter(|number| !world.free(**number).is_empty()) {
        assert!(kept.contains(number), "I6: {number} holds root up without a reason");
    }
    for (at, one) in kept.iter().enumerate() {
        let mut others = kept.iter().skip(at + 1);
        assert!(!others.any(|other| world.compete(*one, *other)), "kept for two");
    }
}
