//! A world of devices whose holders keep them for a given time: what the rule is tried with. It knows the end of each
//! hold, and the rule does not. The benchmark `queue` simulates days with it.

use std::collections::BTreeMap;
use std::time::Duration;
use tranche_plan::queue::{
    Attempted, FairQueue, Free, Grants, QueueTimes, RequestNumber, Requester, Served, UsedLately,
};

/// A request: so many devices of a set, for so long.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub requester: Requester<u32>,
    /// The devices that will do.
    pub of: Vec<usize>,
    /// How many of them.
    pub number: usize,
    pub hold: Duration,
}

/// A user of whom nothing else is said.
pub fn user_of(account: u32) -> Requester<u32> {
    let served = Served::Usual;
    Requester::User { account, served }
}

/// A request that was served.
#[derive(Debug, Clone)]
pub struct ServedRequest {
    pub number: RequestNumber,
    pub wanted: Wanted,
    pub at: Duration,
}

/// The devices and those who wait.
pub struct World {
    /// Which user holds each device, or root, and until when.
    pub held: Vec<Option<(Option<u32>, Duration)>>,
    pub waiting: BTreeMap<RequestNumber, Wanted>,
    pub served: Vec<ServedRequest>,
    /// What the last request was given.
    taken: Vec<usize>,
    pub now: Duration,
}

impl World {
    pub fn new(devices: usize) -> Self {
        Self {
            held: vec![None; devices],
            waiting: BTreeMap::new(),
            served: Vec::new(),
            taken: Vec::new(),
            now: Duration::ZERO,
        }
    }

    /// The devices that are free and that the request may have.
    pub fn free(&self, number: RequestNumber) -> Vec<usize> {
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

    /// A request ends without being served.
    pub fn hang_up(&mut self, number: RequestNumber, queue: &mut FairQueue<u32>) {
        queue.leave(number, self.now);
        self.waiting.remove(&number);
    }

    /// The next step of time: holds end, `arrivals` join, and the queue serves. With `counts`, what is held counts as
    /// used.
    pub fn step(
        &mut self,
        step: Duration,
        queue: &mut FairQueue<u32>,
        used: &mut UsedLately<u32>,
        arrivals: Vec<(RequestNumber, Wanted)>,
        counts: bool,
    ) {
        self.now += step;
        for slot in &mut self.held {
            if let Some((user, end)) = *slot {
                if let Some(user) = user.filter(|_| counts) {
                    used.add(user, step.as_secs_f64(), self.now);
                }
                if end <= self.now {
                    *slot = None;
                }
            }
        }
        for (number, wanted) in arrivals {
            queue.join(number, wanted.requester);
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
            let is_partly_free = !free.is_empty();
            return Attempted::NotNow(if is_partly_free { Free::Part } else { Free::Nothing });
        }
        for device in open.iter().take(wanted.number) {
            if let Some(slot) = self.held.get_mut(*device) {
                *slot = Some((wanted.requester.user(), self.now + wanted.hold));
            }
        }
        self.taken = open.into_iter().take(wanted.number).collect();
        self.waiting.remove(&request);
        self.served.push(ServedRequest {
            number: request,
            wanted,
            at: self.now,
        });
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

/// What came of a request for both devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForBoth {
    /// When it was served, in seconds after it came; `None`: not within 5,000 s.
    pub served: Option<u64>,
    /// For how many seconds a device was free meanwhile.
    pub free: u64,
}

/// The case that no fixed time serves: two devices, jobs of 100 s that begin 50 s after one another, always somebody
/// who waits for one device, and one request for both devices.
pub fn request_for_both(times: QueueTimes) -> ForBoth {
    let seconds = Duration::from_secs;
    let wanted = |user, number| Wanted {
        requester: user_of(user),
        of: vec![0, 1],
        number,
        hold: seconds(100),
    };
    let mut world = World::new(2);
    let mut queue = FairQueue::new(times, 2, false);
    let mut used = UsedLately::new(seconds(86_400));
    world.held = vec![Some((Some(1), seconds(50))), Some((Some(2), seconds(100)))];
    let mut free = 0;
    for (second, user) in (1..5_000).zip(4..) {
        let mut arrivals = Vec::new();
        if second == 1 {
            arrivals.push((0, wanted(0, 2)));
        }
        if world.waiting.len() < 4 {
            arrivals.push((second, wanted(user, 1)));
        }
        world.step(seconds(1), &mut queue, &mut used, arrivals, false);
        if !world.waiting.contains_key(&0) {
            let served = Some(second);
            return ForBoth { served, free };
        }
        free += world.held.iter().map(|slot| u64::from(slot.is_none())).sum::<u64>();
    }
    ForBoth { served: None, free }
}
