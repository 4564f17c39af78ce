//! The invariants of the rule, checked while a world goes on. The benchmark `queue` checks them too.

use super::world::World;
use super::{FairQueue, Grants, QueueTimes, RequestNumber, UsedLately};
use std::collections::BTreeMap;
use std::time::Duration;

/// What was seen until now.
pub(super) struct Watch {
    times: QueueTimes,
    longest_hold: Duration,
    /// For how long something is kept for a request, and how often that was in vain before.
    kept: BTreeMap<RequestNumber, (u32, Duration)>,
    /// The locked request that is the first.
    first: Option<First>,
}

struct First {
    number: RequestNumber,
    since: Duration,
    /// How often something was kept for it in vain before it was the first.
    in_vain: u32,
}

impl Watch {
    /// For a world in which nothing is held for longer than `longest_hold`.
    pub(super) fn new(times: QueueTimes, longest_hold: Duration) -> Self {
        Self {
            times,
            longest_hold,
            kept: BTreeMap::new(),
            first: None,
        }
    }

    /// Looks at the world after a step. Panics if the rule was broken.
    pub(super) fn look(&mut self, step: Duration, queue: &FairQueue<u32>, used: &UsedLately<u32>, world: &World) {
        let kept = queue.kept(world.now);
        nothing_is_free_without_a_reason(&kept, world);
        self.is_kept_in_time(&kept, step, queue);
        self.first_is_served(queue, used, world.now);
    }

    /// I2.
    fn is_kept_in_time(&mut self, kept: &[RequestNumber], step: Duration, queue: &FairQueue<u32>) {
        self.kept.retain(|number, _| kept.contains(number));
        for number in kept {
            let in_vain = queue.in_vain(*number);
            let entry = self.kept.entry(*number).or_insert((in_vain, Duration::ZERO));
            if entry.0 != in_vain {
                *entry = (in_vain, Duration::ZERO);
            }
            entry.1 += step;
            // It is looked at after each step: what ends within a step is free until its end.
            assert!(
                entry.1 < self.times.kept_for(in_vain) + step,
                "I2: kept for request {number} for {:?}",
                entry.1
            );
        }
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

/// I1, and that no two requests for which something is kept want the same.
fn nothing_is_free_without_a_reason(kept: &[RequestNumber], world: &World) {
    for (number, wanted) in &world.waiting {
        let is_kept = |device: &usize| {
            let mut others = kept.iter().filter(|other| *other != number);
            others.any(|other| world.waiting[other].of.contains(device))
        };
        let open = world.free(*number).iter().filter(|device| !is_kept(device)).count();
        assert!(
            open < wanted.number,
            "I1: request {number} could be served at {:?}",
            world.now
        );
    }
    for (at, one) in kept.iter().enumerate() {
        let mut others = kept.iter().skip(at + 1);
        assert!(!others.any(|other| world.compete(*one, *other)), "kept for two");
    }
}
