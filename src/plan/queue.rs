//! Who of those who wait is served next, root's containers and users alike: a pure function of what has happened,
//! without estimates of how long somebody will hold what.
//!
//! The rule, in the words of docs/explanation/waiting.md:
//!
//! 1. There is one order. Root's requests are in it by arrival, and users come after them; where root waits, a user
//!    comes before root's later requests. Between two requests of root, users are in the order of what each has held
//!    lately (device-seconds that decay), then of arrival. Users who are served last come after all others.
//! 2. A request of a user that others have overtaken three times as often as there are devices is *locked*: of the
//!    users between the same two requests of root, locked ones come first, by arrival.
//! 3. Whatever fits is granted, in this order.
//! 4. A request of a user that does not fit may have what is free of it kept free, if nobody ahead of it waits for the
//!    same. From those who come after one of root's requests, all that this one waits for is kept.
//! 5. For a user it is kept for `reserve_for`, doubled with each time that it was in vain, and at most for
//!    `reserve_at_most`. Then the others may have it. It was in vain when one of them has taken some of it. The time is
//!    the user's and not the request's: it goes on when the user asks anew, or for the same with a second request, and
//!    when the request comes first again after others did for a while.
//!
//! What follows from it, and what the tests check:
//!
//! - I1: Nothing is left free that a waiting request could have, except by rules 4 and 5.
//! - I2: What is kept free for a user is kept for no longer than rule 5 says at a time, however often the user asks
//!   anew.
//! - I3: A locked request that is the first of the users is overtaken at most `log2(reserve_at_most / reserve_for) + 1`
//!   times, before things are kept for it as long as `reserve_at_most`.
//! - I4: If nobody holds anything for longer than that, it is served then.
//! - I5: The order is one: nobody waits for somebody behind, so no two wait for one another.
//! - I6: A user holds root up only while something is kept for the user, and only where root waits.

mod given_up;
mod order;
mod usage;

pub use order::{Requester, Served};
pub use usage::UsedLately;

use given_up::GivenUp;
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
    /// The request waits on. This is what is free of what it waits for.
    NotNow(Free),
}

/// What is free of that for which a request waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Free {
    /// Nothing.
    Nothing,
    /// A part.
    Part,
    /// It does not matter: its user may not hold more now.
    ForOthers,
}

/// The requests that wait.
#[derive(Debug, Clone)]
pub struct FairQueue<A> {
    times: QueueTimes,
    /// After how many times of being overtaken a request is locked.
    patience: u32,
    /// Whether root's requests come after users who came before them.
    root_waits: bool,
    waiting: BTreeMap<RequestNumber, WaitingRequest<A>>,
    given_up: GivenUp<A>,
}

/// A request that waits. All but the first is for users alone.
#[derive(Debug, Clone)]
struct WaitingRequest<A> {
    requester: Requester<A>,
    /// How often a request that came later has got something that this one waits for.
    overtaken: u32,
    /// How often something was kept free for it in vain.
    in_vain: u32,
    /// When it was so for the last time.
    in_vain_at: Duration,
    /// Since when something is kept free for it.
    kept_since: Option<Duration>,
    /// Since when something was kept free for it until it was not the first any more, or its user was not to hold more,
    /// and when that was.
    interrupted: Option<(Duration, Duration)>,
    /// Others may have what is free, because it is not kept for it, or not any more.
    stands_back: bool,
}

impl<A: Copy + Ord> FairQueue<A> {
    /// An empty queue for a host with so many devices. `root_waits`: root's requests come after users who came before
    /// them.
    pub fn new(times: QueueTimes, devices: usize, root_waits: bool) -> Self {
        Self {
            times,
            patience: u32::try_from(devices).unwrap_or(u32::MAX).saturating_mul(3).max(1),
            root_waits,
            waiting: BTreeMap::new(),
            given_up: GivenUp::new(times.reserve_at_most),
        }
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Adds a request. Numbers grow with time.
    pub fn join(&mut self, request: RequestNumber, requester: Requester<A>) {
        let waiting = WaitingRequest {
            requester,
            overtaken: 0,
            in_vain: 0,
            in_vain_at: Duration::ZERO,
            kept_since: None,
            interrupted: None,
            stands_back: false,
        };
        self.waiting.insert(request, waiting);
    }

    /// Removes a request that does not wait any more at `now`, and was not served.
    pub fn leave(&mut self, request: RequestNumber, now: Duration) {
        let left = self.waiting.remove(&request);
        let since = |left: &WaitingRequest<A>| self.own_kept_since(left, now);
        let kept = left.and_then(|left| left.requester.user().zip(since(&left)));
        if let Some((account, since)) = kept {
            self.given_up.add(account, since, now);
        }
    }

    /// Says whether root's requests come after users who came before them, after a change of the policy.
    pub fn set_root_waits(&mut self, root_waits: bool) {
        self.root_waits = root_waits;
    }

    /// The requests in the order in which they are served (rules 1 and 2).
    pub fn order(&self, used: &UsedLately<A>, now: Duration) -> Vec<RequestNumber> {
        let is_locked = |request: &WaitingRequest<A>| self.is_at_its_limit(request);
        let requests = self.waiting.iter();
        let requests = requests.map(|(number, request)| (*number, request.requester, is_locked(request)));
        order::of(requests, self.root_waits, |account| used.of(account, now))
    }

    /// Whether others have overtaken the request so often that it comes first of the users now (rule 2).
    pub fn is_locked(&self, request: RequestNumber) -> bool {
        let request = self.waiting.get(&request);
        request.is_some_and(|request| self.is_at_its_limit(request))
    }

    fn is_at_its_limit(&self, request: &WaitingRequest<A>) -> bool {
        request.overtaken >= self.patience
    }

    /// The requests of users for which something is kept free at `now` (rule 5).
    pub fn kept(&self, now: Duration) -> Vec<RequestNumber> {
        let waiting = self.waiting.iter();
        waiting
            .filter(|(_, request)| self.is_kept(request, now))
            .map(|(number, _)| *number)
            .collect()
    }

    /// Those of [`FairQueue::before_later_root`] to whom root's later requests leave what they wait for: as long as
    /// nothing of it is free, so that they have their turn first when something is, and while it is kept for them (I6).
    pub fn hold_root_up(&self) -> Vec<RequestNumber> {
        let mut before = self.before_later_root();
        before.retain(|number| self.waiting.get(number).is_some_and(|request| !request.stands_back));
        before
    }

    /// When something ceases to be kept, if nothing else happens.
    pub fn next_end(&self, now: Duration) -> Option<Duration> {
        let kept = self.waiting.values().filter(|request| self.is_kept(request, now));
        let ends = kept.filter_map(|request| Some(request.kept_since? + self.times.kept_for(request.in_vain)));
        ends.min()
    }

    /// The requests of users that come before those of root that came later (rule 1).
    pub fn before_later_root(&self) -> Vec<RequestNumber> {
        let waiting = self.waiting.iter().filter(|_| self.root_waits);
        waiting
            .filter(|(_, request)| request.requester.comes_before_later_root(self.is_at_its_limit(request)))
            .map(|(number, _)| *number)
            .collect()
    }

    fn is_kept(&self, request: &WaitingRequest<A>, now: Duration) -> bool {
        let since = request.kept_since;
        since.is_some_and(|since| now.saturating_sub(since) < self.times.kept_for(request.in_vain))
    }

    /// How often something was kept free for the request in vain.
    pub fn in_vain(&self, request: RequestNumber) -> u32 {
        self.waiting.get(&request).map_or(0, |request| request.in_vain)
    }

    /// Grants whatever can be granted at `now` (rules 3 to 5). Requests that were granted, or that have gone, are not
    /// in the queue any more.
    pub fn serve(&mut self, used: &UsedLately<A>, now: Duration, grants: &mut impl Grants) {
        // A grant may lock others, which changes the order.
        while self.serve_once(used, now, grants) {}
    }

    /// Attempts each request once. Returns whether one was granted.
    fn serve_once(&mut self, used: &UsedLately<A>, now: Duration, grants: &mut impl Grants) -> bool {
        let mut is_any_granted = false;
        let mut ahead: Vec<RequestNumber> = Vec::new();
        let mut left_to: Vec<RequestNumber> = Vec::new();
        for number in self.order(used, now) {
            let Some(requester) = self.requester(number) else {
                continue;
            };
            match grants.attempt(number, &left_to) {
                Attempted::Gone => self.leave(number, now),
                Attempted::Granted => {
                    is_any_granted = true;
                    self.waiting.remove(&number);
                    if requester != Requester::Root {
                        self.note_grant(number, now, grants);
                    }
                }
                Attempted::NotNow(free) => {
                    let is_first = || ahead.iter().all(|other| !grants.compete(*other, number));
                    let keeps = match requester {
                        Requester::Root => true,
                        Requester::User { account, .. } => {
                            let may = free == Free::Part && is_first();
                            if !may && free != Free::Nothing {
                                self.interrupt(number, now);
                            }
                            let keeps = self.keeps(number, account, may, now, grants);
                            if let Some(request) = self.waiting.get_mut(&number) {
                                request.stands_back = free != Free::Nothing && !keeps;
                            }
                            keeps
                        }
                    };
                    if keeps {
                        left_to.push(number);
                    }
                    ahead.push(number);
                }
            }
        }
        is_any_granted
    }

    fn requester(&self, number: RequestNumber) -> Option<Requester<A>> {
        self.waiting.get(&number).map(|request| request.requester)
    }

    /// Notes that something ceases to be kept for the request before its time is over, although something is free. A
    /// grant may lock the request within this moment, and when it is the first again, its time goes on.
    fn interrupt(&mut self, number: RequestNumber, now: Duration) {
        let is_kept = self
            .waiting
            .get(&number)
            .is_some_and(|request| self.is_kept(request, now));
        if let Some(request) = self.waiting.get_mut(&number).filter(|_| is_kept) {
            request.interrupted = request.kept_since.map(|since| (since, now));
        }
    }

    /// Since when something is kept for the request, or was kept before that was interrupted a short time ago.
    fn own_kept_since(&self, request: &WaitingRequest<A>, now: Duration) -> Option<Duration> {
        let interrupted = request.interrupted;
        let recently = interrupted.filter(|(_, at)| now.saturating_sub(*at) < self.times.reserve_at_most);
        request.kept_since.or(recently.map(|(since, _)| since))
    }

    /// Whether what is free is still kept for the request. `may`: something of it is free, and nobody ahead waits for
    /// the same.
    fn keeps(&mut self, number: RequestNumber, account: A, may: bool, now: Duration, grants: &impl Grants) -> bool {
        let since = may.then(|| self.kept_since(number, account, now, grants).unwrap_or(now));
        let Some(mut request) = self.waiting.remove(&number) else {
            return false;
        };
        // Its time was over, and now nothing of it is free: root has taken it, whose grants are not seen.
        if since.is_none() && request.kept_since.is_some() && !self.is_kept(&request, now) {
            request.was_in_vain(now);
        }
        request.kept_since = since;
        let is_kept = self.is_kept(&request, now);
        self.waiting.insert(number, request);
        is_kept
    }

    /// Since when something is kept for the request, for another one of its user that waits for the same, or for one
    /// that has left.
    fn kept_since(&self, number: RequestNumber, account: A, now: Duration, grants: &impl Grants) -> Option<Duration> {
        let own = self.waiting.get(&number)?;
        if let Some(since) = self.own_kept_since(own, now) {
            return Some(since);
        }
        // What was kept earlier was in vain, too.
        let left = self.given_up.since(account, own.in_vain_at, now);
        let others = self.waiting.iter();
        let others = others.filter(|(_, other)| other.requester.user() == Some(account));
        let since = others.filter_map(|(other, request)| Some((*other, self.own_kept_since(request, now)?)));
        let same = since.filter(|(other, _)| grants.compete(*other, number));
        same.map(|(_, since)| since).chain(left).min()
    }

    /// Notes that a user's request `granted` has got what others wait for.
    fn note_grant(&mut self, granted: RequestNumber, now: Duration, grants: &impl Grants) {
        for (number, request) in &mut self.waiting {
            if request.requester == Requester::Root || !grants.was_taken_from(*number) {
                continue;
            }
            if *number < granted {
                request.overtaken = request.overtaken.saturating_add(1);
            }
            if request.kept_since.take().is_some() {
                request.was_in_vain(now);
            }
        }
    }
}

impl<A> WaitingRequest<A> {
    /// Others have had at `now` what was kept for it.
    fn was_in_vain(&mut self, now: Duration) {
        self.interrupted = None;
        self.in_vain = self.in_vain.saturating_add(1);
        self.in_vain_at = now;
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
