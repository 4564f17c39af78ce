//! The turns of requests: what the rule asks of the world.

use super::Waits;
use std::collections::BTreeMap;
use std::sync::mpsc::{Sender, channel};
use tranche_core::ledger::Waiter;
use tranche_core::types::{DeviceKey, HeldPart};
use tranche_plan::queue::{Attempted, Grants, RequestNumber};

/// A turn of one request.
#[derive(Debug)]
pub(super) struct Turn {
    /// Requests for which what they want is left free.
    pub(super) left_to: Vec<Waiter>,
    /// Where the answer goes.
    pub(super) reply: Sender<Reply>,
}

/// What came of a turn.
#[derive(Debug)]
pub(super) enum Reply {
    /// It has got this.
    Granted(Vec<(DeviceKey, HeldPart)>),
    /// It waits on.
    NotNow {
        /// Whether something may be kept free for it.
        is_partly_free: bool,
    },
    /// It does not wait any more.
    Gone,
}

/// Gives turns to those who wait.
pub(super) struct Turns<'w> {
    waiting: &'w mut BTreeMap<RequestNumber, Waits>,
    /// What the last one has got.
    taken: Vec<(DeviceKey, HeldPart)>,
}

impl<'w> Turns<'w> {
    pub(super) fn of(waiting: &'w mut BTreeMap<RequestNumber, Waits>) -> Self {
        Self {
            waiting,
            taken: Vec::new(),
        }
    }

    fn waiter(&self, request: RequestNumber) -> Option<Waiter> {
        let waits = self.waiting.get(&request)?;
        Some(Waiter::without_ticket(waits.wants.clone()))
    }
}

impl Grants for Turns<'_> {
    fn attempt(&mut self, request: RequestNumber, left_to: &[RequestNumber]) -> Attempted {
        let left_to = left_to.iter().filter_map(|other| self.waiter(*other)).collect();
        let (reply, replies) = channel();
        let turn = Turn { left_to, reply };
        let sent = self.waiting.get(&request).map(|waits| waits.turns.send(turn));
        // A request that ends drops its turn, and so the reply.
        let answer = match sent {
            Some(Ok(())) => replies.recv().unwrap_or(Reply::Gone),
            Some(Err(_)) | None => Reply::Gone,
        };
        match answer {
            Reply::Granted(taken) => {
                self.taken = taken;
                self.waiting.remove(&request);
                Attempted::Granted
            }
            Reply::NotNow { is_partly_free } => Attempted::NotNow { is_partly_free },
            Reply::Gone => {
                self.waiting.remove(&request);
                Attempted::Gone
            }
        }
    }

    fn compete(&self, one: RequestNumber, other: RequestNumber) -> bool {
        let one = self.waiter(one);
        let wants = self.waiting.get(&other).map(|waits| waits.wants.as_slice());
        one.zip(wants).is_some_and(|(one, wants)| one.competes(wants))
    }

    fn was_taken_from(&self, waiting: RequestNumber) -> bool {
        let waiter = self.waiter(waiting);
        waiter.is_some_and(|waiter| self.taken.iter().any(|(device, part)| waiter.wants(device, part)))
    }
}
