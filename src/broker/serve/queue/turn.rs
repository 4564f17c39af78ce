//! The turns of requests: what the rule asks of the world.

use super::{TakenPart, Waits};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use tranche_core::claims::Claims;
use tranche_core::ledger::{Books, Claim, WaitedFor, Waiter};
use tranche_plan::queue::{Attempted, Free, Grants, RequestNumber};
use tranche_plan::reserve::FreeParts;
use tranche_plan::share::Plan;

/// What a request is woken for.
#[derive(Debug)]
pub(super) enum Wake {
    /// Its turn.
    Turn(Turn),
    /// To look whether it is still needed.
    Look,
}

/// A turn of one request.
#[derive(Debug)]
pub(super) struct Turn {
    /// Users' requests for which what they want is left free.
    pub(super) left_to: Vec<Waiter>,
    /// Whether it comes before those requests of root that came later. Otherwise it comes after all of them.
    pub(super) comes_before_later_root: bool,
    /// Where the answer goes.
    pub(super) reply: Sender<Reply>,
}

/// What came of a turn.
#[derive(Debug)]
pub(super) enum Reply {
    /// It has got this.
    Granted(Vec<TakenPart>),
    /// It waits on. This is what is free of what it waits for.
    NotNow(Free),
    /// It does not wait any more.
    Gone,
}

/// What a turn came to, and of what: as long as nothing of it has changed, another turn comes to the same.
#[derive(Debug)]
pub(super) struct Answered {
    plan: Arc<Plan>,
    generation: u64,
    left_to: Vec<RequestNumber>,
    free: Free,
}

impl Answered {
    fn is_of(&self, plan: &Arc<Plan>) -> bool {
        Arc::ptr_eq(&self.plan, plan)
    }
}

/// What is held, as it was at one moment, and how it is shared.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    books: Books,
    plan: Arc<Plan>,
    free: FreeParts,
    /// Grows with each change.
    generation: u64,
}

impl Snapshot {
    /// Notes what is held now, under `plan`.
    pub(super) fn set(&mut self, books: Books, plan: Arc<Plan>) {
        let of = |books: &Books| (books.times.clone(), books.out_of_service.clone());
        let is_same = self.books.books == books.books && of(&self.books) == of(&books);
        // What is wrong with a damaged book may have changed.
        if is_same && books.damaged.is_empty() && Arc::ptr_eq(&self.plan, &plan) {
            return;
        }
        *self = Self {
            books,
            plan,
            free: FreeParts::default(),
            generation: self.generation + 1,
        };
    }

    /// The claims.
    pub(super) fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.books.claims()
    }

    fn may_serve(&mut self, wants: &[WaitedFor]) -> bool {
        self.free.may_serve(&self.plan, &self.books.books, wants)
    }
}

/// Gives turns to those who wait.
pub(super) struct Turns<'w> {
    pub(super) waiting: &'w mut BTreeMap<RequestNumber, Waits>,
    /// Root's requests.
    pub(super) of_root: BTreeMap<RequestNumber, &'w Waiter>,
    /// The requests of users that come before those of root that came later.
    pub(super) before_later_root: Vec<RequestNumber>,
    pub(super) claims: &'w Claims,
    pub(super) snapshot: &'w mut Snapshot,
    /// What the last one has got.
    pub(super) taken: Vec<TakenPart>,
}

impl Turns<'_> {
    fn waiter(&self, request: RequestNumber) -> Option<Waiter> {
        let of_root = || self.of_root.get(&request).map(|waiter| Waiter::clone(waiter));
        match self.waiting.get(&request) {
            Some(waits) => Some(Waiter::without_ticket(Arc::clone(&waits.wants))),
            None => of_root(),
        }
    }

    /// Lets the request make its attempt.
    fn turn(&self, request: RequestNumber, waits: &Waits, left_to: &[RequestNumber]) -> Reply {
        // Root's are in the queue of the ledger, where the request looks under the ledger's lock.
        let of_users = left_to.iter().filter(|other| self.waiting.contains_key(other));
        let (reply, replies) = channel();
        let turn = Turn {
            left_to: of_users.filter_map(|other| self.waiter(*other)).collect(),
            comes_before_later_root: self.before_later_root.contains(&request),
            reply,
        };
        // A request that ends drops its turn, and so the reply.
        match waits.turns.send(Wake::Turn(turn)) {
            Ok(()) => replies.recv().unwrap_or(Reply::Gone),
            Err(_) => Reply::Gone,
        }
    }
}

impl Grants for Turns<'_> {
    fn attempt(&mut self, request: RequestNumber, left_to: &[RequestNumber]) -> Attempted {
        if self.of_root.contains_key(&request) {
            // It makes its attempts by itself.
            return Attempted::NotNow(Free::Nothing);
        }
        let Some(waits) = self.waiting.get(&request) else {
            return Attempted::Gone;
        };
        if let Some(answered) = &waits.answered {
            if answered.generation == self.snapshot.generation && answered.left_to == left_to {
                return Attempted::NotNow(answered.free);
            }
            if answered.is_of(&self.snapshot.plan) && !self.snapshot.may_serve(&waits.wants) {
                return Attempted::NotNow(Free::Nothing);
            }
        }
        match self.turn(request, waits, left_to) {
            Reply::Granted(taken) => {
                self.taken = taken;
                self.waiting.remove(&request);
                if let Ok(books) = self.claims.books() {
                    self.snapshot.set(books, Arc::clone(&self.snapshot.plan));
                }
                Attempted::Granted
            }
            Reply::NotNow(free) => {
                let answered = Answered {
                    plan: Arc::clone(&self.snapshot.plan),
                    generation: self.snapshot.generation,
                    left_to: left_to.to_vec(),
                    free,
                };
                if let Some(waits) = self.waiting.get_mut(&request) {
                    waits.answered = Some(answered);
                }
                Attempted::NotNow(free)
            }
            Reply::Gone => {
                self.waiting.remove(&request);
                Attempted::Gone
            }
        }
    }

    fn compete(&self, one: RequestNumber, other: RequestNumber) -> bool {
        let one = self.waiter(one);
        let other = self.waiter(other);
        one.zip(other).is_some_and(|(one, other)| one.competes_with(&other))
    }

    fn was_taken_from(&self, waiting: RequestNumber) -> bool {
        let waiter = self.waiter(waiting);
        waiter.is_some_and(|waiter| self.taken.iter().any(|(device, part)| waiter.wants(device, part)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use tranche_core::ledger::{Calendar, NearTimes, ReservedTime};
    use tranche_core::types::HeldPart;

    /// Nothing is written then, and those who wait are to have a turn all the same.
    #[test]
    fn the_begin_and_the_end_of_a_reserved_time_are_changes_of_what_is_held() {
        let mut calendar = Calendar::default();
        calendar.add(ReservedTime {
            id: 0,
            uid: 1000,
            who: "ann".to_owned(),
            device: "GPU-11111111".parse().unwrap(),
            part: HeldPart::Whole,
            label: "gpu 0".to_owned(),
            from: 10_000,
            until: 20_000,
            before: 1800,
            no_show: 900,
            made: 0,
            zone: "UTC".to_owned(),
            offsets: [0, 0],
            reason: None,
        });
        let plan = Arc::new(Plan::default());
        let mut snapshot = Snapshot::default();
        let mut generation_at = |clock: u64| {
            let times = NearTimes::at(&calendar, None, clock, 1 << 40, || Ok(BTreeSet::new())).unwrap();
            let books = Books {
                times,
                ..Books::default()
            };
            snapshot.set(books, Arc::clone(&plan));
            snapshot.generation
        };
        let before = generation_at(8000);
        let near = generation_at(8300);
        assert_eq!((generation_at(8400), generation_at(9000)), (near, near), "time alone");
        let given_up = generation_at(10_900);
        let over = generation_at(20_000);
        assert!(before < near && near < given_up && given_up < over);
    }
}
