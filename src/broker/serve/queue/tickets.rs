//! The places of users' requests in the queue of the ledger, where the policy says that root waits (`rootWaits`).
//!
//! Root's containers and claims wait in that queue, by arrival, and come after those who have lower numbers and wait
//! for the same. The ticket of a user says what the user waits for, as long as nothing of it is free or while it is
//! kept free for the user, and nothing otherwise: then it holds nobody up. Among themselves, users have the order of
//! the broker: they do not count each other's tickets.

use std::collections::BTreeMap;
use std::sync::Mutex;
use tranche_core::claims::LockedClaims;
use tranche_core::ledger::{LedgerResult, Ticket, WaitedFor, Waiter};
use tranche_plan::queue::RequestNumber;
use tranche_state::mutex::lock;

/// The tickets that users have.
#[derive(Debug, Default)]
pub(super) struct Tickets(Mutex<BTreeMap<RequestNumber, UserTicket>>);

#[derive(Debug)]
struct UserTicket {
    ticket: Ticket,
    /// Whether root comes after it.
    holds_root_up: bool,
}

impl Tickets {
    /// Takes a place for a request. The ledger is locked, so that nobody sees the ticket as one of root's.
    ///
    /// # Errors
    /// Returns an error if the ticket cannot be made.
    pub(super) fn line_up(
        &self,
        locked: &LockedClaims<'_>,
        request: RequestNumber,
        wants: &[WaitedFor],
    ) -> LedgerResult<()> {
        let ticket = locked.ledger().line_up(wants)?;
        let holds_root_up = true;
        lock(&self.0).insert(request, UserTicket { ticket, holds_root_up });
        Ok(())
    }

    /// Gives the place of a request up, if it has one.
    pub(super) fn give_up(&self, request: RequestNumber) {
        drop(lock(&self.0).remove(&request));
    }

    /// Those of root who wait: with `own`, those who came before this request, if it has a ticket.
    ///
    /// # Errors
    /// Returns an error if the queue cannot be read.
    pub(super) fn of_root(&self, locked: &LockedClaims<'_>, own: Option<RequestNumber>) -> LedgerResult<Vec<Waiter>> {
        let tickets = lock(&self.0);
        let of_users: Vec<u64> = tickets.values().map(|of_user| of_user.ticket.number()).collect();
        let own = own.and_then(|own| Some(tickets.get(&own)?.ticket.number()));
        drop(tickets);
        let is_left_out = |number: u64| of_users.contains(&number) || own.is_some_and(|own| number >= own);
        locked.ledger().waiters_but(&is_left_out)
    }

    /// Whether root does not come after just these requests yet, as far as they have tickets.
    pub(super) fn is_news(&self, hold_root_up: &[RequestNumber]) -> bool {
        let tickets = lock(&self.0);
        let mut tickets = tickets.iter();
        tickets.any(|(request, of_user)| of_user.holds_root_up != hold_root_up.contains(request))
    }

    /// Lets root come after these requests, and after no other of a user. `wants` says what each waits for.
    ///
    /// # Errors
    /// Returns an error if a ticket cannot be written.
    pub(super) fn hold_root_up<'w>(
        &self,
        locked: &LockedClaims<'_>,
        requests: &[RequestNumber],
        wants: impl Fn(RequestNumber) -> Option<&'w [WaitedFor]>,
    ) -> LedgerResult<()> {
        for (request, of_user) in lock(&self.0).iter_mut() {
            let holds_root_up = requests.contains(request);
            if of_user.holds_root_up != holds_root_up {
                let wants = wants(*request).filter(|_| holds_root_up).unwrap_or_default();
                of_user.ticket.write_again(locked.ledger(), wants)?;
                of_user.holds_root_up = holds_root_up;
            }
        }
        Ok(())
    }

    /// The number of the ticket of a request.
    pub(super) fn of(&self, request: RequestNumber) -> Option<u64> {
        lock(&self.0).get(&request).map(|of_user| of_user.ticket.number())
    }
}
