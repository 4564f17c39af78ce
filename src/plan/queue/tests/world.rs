//! A world of devices whose holders keep them for a given time: what the rule is tried with. It knows the end of each
//! hold, and the rule does not.

use super::{Attempted, FairQueue, Grants, RequestNumber, UsedLately, Weight};
use std::collections::BTreeMap;
use std::time::Duration;

/// A request: so many devices of a set, for so long.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) user: u32,
    pub(super) weight: Weight,
    /// The devices that will do.
    pub(super) of: Vec<usize>,
    /// How many of them.
    pub(super) number: usize,
    pub(super) hold: Duration,
}

/// A request that was served.
#[derive(Debug, Clone)]
pub(super) struct Served {
    pub(super) wanted: Wanted,
    pub(super) at: Duration,
}

/// The devices and those who wait.
pub(super) struct World {
    /// Who holds each device, and until when.
    pub(super) held: Vec<Option<(u32, Duration)>>,
    pub(super) waiting: BTreeMap<RequestNumber, Wanted>,
    pub(super) served: Vec<Served>,
    /// What the last request was given.
    taken: Vec<usize>,
    pub(super) now: Duration,
}

impl World {
    pub(super) fn new(devices: usize) -> Self {
        Self {
            held: vec![None; devices],
            waiting: BTreeMap::new(),
            served: Vec::new(),
            taken: Vec::new(),
            now: Duration::ZERO,
        }
    }

    /// The devices that are free and that the request may have.
    pub(super) fn free(&self, number: RequestNumber) -> Vec<usize> {
        let of = self
            .waiting
            .get(&number)
            .map(|wanted| wanted.of.as_slice())
            .unwrap_or_default();
        of.iter()
            .copied()
            .filter(|device| self.held.get(*device) == Some(&None))
            .collect()
    }

    /// One second: holds end, `arrivals` join, and the queue serves.
    pub(super) fn second(
        &mut self,
        queue: &mut FairQueue<u32>,
        used: &mut UsedLately<u32>,
        arrivals: Vec<(RequestNumber, Wanted)>,
        counts: bool,
    ) {
        self.now += Duration::from_secs(1);
        for slot in &mut self.held {
            if let Some((user, end)) = *slot {
                if counts {
                    used.add(user, 1.0, self.now);
                }
                if end <= self.now {
                    *slot = None;
                }
            }
        }
        for (number, wanted) in arrivals {
            queue.join(number, wanted.user, wanted.weight);
            self.waiting.insert(number, wanted);
        }
        queue.serve(used, self.now, self);
    }
}

impl Grants for World {
    fn attempt(&mut self, request: RequestNumber, left_to: &[RequestNumber]) -> Attempted {
        let Some(wanted) = self.waiting.get(&request).cloned() else {
            return Attempted::Gone;
        };
        let free = self.free(request);
        let is_left = |device: &usize| {
            let mut others = left_to.iter().filter_map(|other| self.waiting.get(other));
            others.any(|other| other.of.contains(device))
        };
        let open: Vec<usize> = free.iter().copied().filter(|device| !is_left(device)).collect();
        if open.len() < wanted.number {
            return Attempted::NotNow {
                is_partly_free: !free.is_empty(),
            };
        }
        for device in open.iter().take(wanted.number) {
            if let Some(slot) = self.held.get_mut(*device) {
                *slot = Some((wanted.user, self.now + wanted.hold));
            }
        }
        self.taken = open.into_iter().take(wanted.number).collect();
        self.waiting.remove(&request);
        self.served.push(Served { wanted, at: self.now });
        Attempted::Granted
    }

    fn compete(&self, one: RequestNumber, other: RequestNumber) -> bool {
        let of = |number| self.waiting.get(&number).map(|wanted: &Wanted| &wanted.of);
        let (one, other) = (of(one), of(other));
        one.zip(other)
            .is_some_and(|(one, other)| one.iter().any(|device| other.contains(device)))
    }

    fn was_taken_from(&self, waiting: RequestNumber) -> bool {
        let wanted = self.waiting.get(&waiting);
        wanted.is_some_and(|wanted| wanted.of.iter().any(|device| self.taken.contains(device)))
    }
}
