//! Who of the waiting users is served next: a pure function of what has happened, without estimates of how long
//! somebody will hold what.
//!
//! The rule, in the words of docs/sharing.md:
//!
//! 1. The order is by what the user has held lately (device-seconds that decay), then by arrival. Users who are served
//!    last come after all others.
//! 2. A request that others have overtaken three times as often as there are devices is *locked*: locked requests come
//!    first, by arrival.
//! 3. Whatever fits is granted, in this order.
//! 4. A request that does not fit may have what is free of it kept free, if nobody ahead of it waits for the same.
//! 5. That is kept free for `reserve_for`, doubled with each time that it was in vain, and at most for
//!    `reserve_at_most`. Then the others may have it. It was in vain when one of them has taken some of it.
//!
//! What follows from it, and what the tests check:
//!
//! - I1: Nothing is left free that a waiting request could have, except by rule 5.
//! - I2: What is kept free for one request is kept for no longer than rule 5 says at a time.
//! - I3: A locked request that is the first is overtaken at most `log2(reserve_at_most / reserve_for) + 1` times,
//!   before things are kept for it as long as `reserve_at_most`.
//! - I4: If nobody holds anything for longer than that, it is served then.

mod usage;

pub use usage::UsedLately;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The number of a request, in the order of arrival.
pub type RequestNumber = u64;

/// How long things are kept free for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueTimes {
    /// The first time.
    pub reserve_for: Duration,
    /// The longest time.
    pub reserve_at_most: Duration,
}

/// When the requests of a user are served. The later one is the more generous one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Served {
    /// After those of all others.
    Last,
    /// By what the user has held lately.
    #[default]
    Usual,
}

/// What the rule needs of the world: the ledger, or a simulation of it.
pub trait Grants {
    /// Gives the request what it waits for, if it can have that while everything that the requests `left_to` wait for
    /// is left to them.
    fn attempt(&mut self, request: RequestNumber, left_to: &[RequestNumber]) -> Attempted;

    /// Whether two waiting requests may be served by the same thing.
    fn compete(&self, one: RequestNumber, other: RequestNumber) -> bool;

    /// Whether the request that was granted last has taken something that `waiting` waits for.
    fn was_taken_from(&self, waiting: RequestNumber) -> bool;
}

/// What an attempt came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempted {
    /// The request has what it waited for.
    Granted,
    /// The request does not wait any more: its client has gone, or it can never be served.
    Gone,
    /// The request waits on.
    NotNow {
        /// Whether a part of what it waits for is free, and its user may hold it.
        is_partly_free: bool,
    },
}

/// The requests that wait.
#[derive(Debug, Clone)]
pub struct FairQueue<A> {
    times: QueueTimes,
    /// After how many times of being overtaken a request is locked.
    patience: u32,
    waiting: BTreeMap<RequestNumber, WaitingRequest<A>>,
}

/// A request that waits.
#[derive(Debug, Clone)]
struct WaitingRequest<A> {
    account: A,
    served: Served,
    /// How often a request that came later has got something that this one waits for.
    overtaken: u32,
    /// How often something was kept free for it in vain.
    in_vain: u32,
    /// Since when something is kept free for it.
    kept_since: Option<Duration>,
}

impl<A: Copy + Ord> FairQueue<A> {
    /// An empty queue for a host with so many devices.
    pub fn new(times: QueueTimes, devices: usize) -> Self {
        Self {
            times,
            patience: u32::try_from(devices).unwrap_or(u32::MAX).saturating_mul(3).max(1),
            waiting: BTreeMap::new(),
        }
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a request of `account`. Numbers grow with time.
    pub fn join(&mut self, request: RequestNumber, account: A, served: Served) {
        let waiting = WaitingRequest {
            account,
            served,
            overtaken: 0,
            in_vain: 0,
            kept_since: None,
        };
        self.waiting.insert(request, waiting);
    }

    /// Removes a request that does not wait any more.
    pub fn leave(&mut self, request: RequestNumber) {
        self.waiting.remove(&request);
    }

    /// The requests in the order in which they are served (rules 1 and 2).
    pub fn order(&self, used: &UsedLately<A>, now: Duration) -> Vec<RequestNumber> {
        let rank = |request: &WaitingRequest<A>| match (self.is_at_its_limit(request), request.served) {
            (true, _) => (0, 0.0),
            (false, Served::Usual) => (1, used.of(request.account, now)),
            (false, Served::Last) => (2, 0.0),
        };
        let waiting = self.waiting.iter();
        let mut ranked: Vec<((u8, f64), RequestNumber)> =
            waiting.map(|(number, request)| (rank(request), *number)).collect();
        ranked.sort_by(|((class, used), number), ((other_class, other_used), other)| {
            let by_use = class.cmp(other_class).then(used.total_cmp(other_used));
            by_use.then(number.cmp(other))
        });
        ranked.into_iter().map(|(_, number)| number).collect()
    }

    /// Whether others have overtaken the request so often that it comes first now (rule 2).
    pub fn is_locked(&self, request: RequestNumber) -> bool {
        let request = self.waiting.get(&request);
        request.is_some_and(|request| self.is_at_its_limit(request))
    }

    fn is_at_its_limit(&self, request: &WaitingRequest<A>) -> bool {
        request.overtaken >= self.patience
    }

    /// The requests for which something is kept free at `now` (rule 5).
    pub fn kept(&self, now: Duration) -> Vec<RequestNumber> {
        let is_kept = |request: &WaitingRequest<A>| {
            let since = request.kept_since;
            since.is_some_and(|since| now.saturating_sub(since) < self.times.kept_for(request.in_vain))
        };
        let waiting = self.waiting.iter();
        waiting
            .filter(|(_, request)| is_kept(request))
            .map(|(number, _)| *number)
            .collect()
    }

    /// How often something was kept free for the request in vain.
    pub fn in_vain(&self, request: RequestNumber) -> u32 {
        self.waiting.get(&request).map_or(0, |request| request.in_vain)
    }

    /// Grants whatever can be granted at `now` (rules 3 to 5). Requests that were granted, or that have gone, are not
    /// in the queue any more.
    pub fn serve(&mut self, used: &UsedLately<A>, now: Duration, grants: &mut impl Grants) {
        let mut ahead: Vec<RequestNumber> = Vec::new();
        let mut left_to: Vec<RequestNumber> = Vec::new();
        for number in self.order(used, now) {
            match grants.attempt(number, &left_to) {
                Attempted::Gone => self.leave(number),
                Attempted::Granted => {
                    self.leave(number);
                    self.note_grant(number, grants);
                }
                Attempted::NotNow { is_partly_free } => {
                    let is_first = ahead.iter().all(|other| !grants.compete(*other, number));
                    if is_first && is_partly_free {
                        if self.keeps(number, now) {
                            left_to.push(number);
                        }
                    } else if let Some(request) = self.waiting.get_mut(&number) {
                        request.kept_since = None;
                    }
                    ahead.push(number);
                }
            }
        }
    }

    /// Whether what is free is still kept for the request.
    fn keeps(&mut self, number: RequestNumber, now: Duration) -> bool {
        let times = self.times;
        let Some(request) = self.waiting.get_mut(&number) else {
            return false;
        };
        let since = *request.kept_since.get_or_insert(now);
        now.saturating_sub(since) < times.kept_for(request.in_vain)
    }

    /// Notes that `granted` has got what others wait for.
    fn note_grant(&mut self, granted: RequestNumber, grants: &impl Grants) {
        let others = self.waiting.iter_mut();
        for (number, request) in others.filter(|(number, _)| grants.was_taken_from(**number)) {
            if *number < granted {
                request.overtaken = request.overtaken.saturating_add(1);
            }
            if request.kept_since.take().is_some() {
                request.in_vain = request.in_vain.saturating_add(1);
            }
        }
    }
}

impl QueueTimes {
    /// For how long things are kept free for a request for which that was in vain so often.
    pub fn kept_for(self, in_vain: u32) -> Duration {
        let doubled = 2_u32
            .checked_pow(in_vain)
            .and_then(|times| self.reserve_for.checked_mul(times));
        doubled.unwrap_or(Duration::MAX).min(self.reserve_at_most)
    }
}

#[cfg(test)]
mod tests;
