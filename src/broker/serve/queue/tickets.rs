//! The places of users' requests in the queue of the ledger, where the policy says that root waits (`rootWaits`).
//!
//! Root's containers and claims wait in that queue, by arrival. A request of a user with a ticket there comes before
//! root's later ones. Among themselves, users have the order of the broker: they do not count each other's tickets.

use std::collections::BTreeMap;
use std::sync::Mutex;
use tranche_core::claims::LockedClaims;
use tranche_core::ledger::{LedgerResult, Ticket, WaitedFor, Waiter};
use tranche_plan::queue::RequestNumber;
use tranche_state::mutex::lock;

/// The numbers of the tickets that users have.
#[derive(Debug, Default)]
pub(super) struct Tickets(Mutex<BTreeMap<RequestNumber, u64>>);

/// The ticket of a request, until it is dropped.
pub(super) struct UserTicket<'t> {
    tickets: &'t Tickets,
    request: RequestNumber,
    ticket: Ticket,
}

impl Drop for UserTicket<'_> {
    fn drop(&mut self) {
        // Before the ticket itself, whose number root may get next.
        lock(&self.tickets.0).remove(&self.request);
    }
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
    ) -> LedgerResult<UserTicket<'_>> {
        let ticket = locked.ledger().line_up(wants)?;
        lock(&self.0).insert(request, ticket.number());
        Ok(UserTicket {
            tickets: self,
            request,
            ticket,
        })
    }

    /// Those of root who come before a request with this ticket; without one, all of them.
    ///
    /// # Errors
    /// Returns an error if the queue cannot be read.
    pub(super) fn of_root(&self, locked: &LockedClaims<'_>, own: Option<&UserTicket<'_>>) -> LedgerResult<Vec<Waiter>> {
        let mut waiters = locked.ledger().waiters()?;
        let of_users = lock(&self.0);
        waiters.retain(|waiter| {
            let is_earlier = own.is_none_or(|own| waiter.ticket() < own.ticket.number());
            is_earlier && !of_users.values().any(|number| *number == waiter.ticket())
        });
        Ok(waiters)
    }

    /// The number of the ticket of a request.
    pub(super) fn of(&self, request: RequestNumber) -> Option<u64> {
        lock(&self.0).get(&request).copied()
    }
}
