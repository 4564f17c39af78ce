//! Waiting for shares that others hold, in the order of coming.

use super::Claims;
use super::draft::{Draft, wanted};
use super::reserve::{Offer, Reservation, ReserveError};
use crate::ledger::{Claim, LedgerResult, Ticket, WaitedFor, Waiter};
use crate::share::{Fit, Plan};
use std::time::{Duration, Instant};

/// How often a waiter looks whether something has ended. A container that ends by itself writes nothing to the ledger.
const POLL: Duration = Duration::from_millis(100);

/// How much longer a waiter that comes later waits before it looks at all who are ahead of it, for each of them.
const LONGER_FOR_EACH: Duration = Duration::from_millis(20);

impl Claims {
    /// As [`super::LockedClaims::reserve_all`], and waits up to `wait` for what others hold.
    ///
    /// Those who wait are served in the order of their coming. One that can also be served by a share that nobody ahead
    /// waits for does not wait for those ahead. A waiter that ends in any way leaves the queue.
    ///
    /// # Errors
    /// As [`super::LockedClaims::reserve_all`]. If the wishes could not be served on an unused machine either, nothing is
    /// waited for. [`ReserveError::TimedOut`] has the last reason.
    pub fn reserve_all_waiting(
        &self,
        plan: &Plan,
        reservations: &[Reservation],
        offer: &impl Offer,
        wait: Duration,
    ) -> Result<Vec<(Fit, Claim)>, ReserveError> {
        let began = Instant::now();
        let locked = self.lock()?;
        match locked.reserve_all(plan, reservations, offer) {
            Err(error) if error.may_pass() && !wait.is_zero() => {}
            done => return done,
        }
        let unused = || Draft::new(plan, &self.machine, self.uid);
        unused().take_all(reservations)?;
        let wants: Vec<WaitedFor> = reservations.iter().flat_map(|one| wanted(plan, &one.wish)).collect();
        // Under the same lock, so that nobody can come in between.
        let ticket = locked.locked.line_up(&wants)?;
        drop(locked);
        let watch = self.ledger.watch();
        loop {
            let left = wait.saturating_sub(began.elapsed());
            let ahead = ticket.ahead()?;
            let mut if_all_were_free = Draft {
                ahead: &ahead,
                ..unused()
            };
            if !left.is_zero() && if_all_were_free.take_all(reservations).is_err() {
                until_one_leaves(&ticket, &ahead, &wants, left)?;
                continue;
            }
            let locked = self.lock()?;
            match locked.reserve_after(plan, reservations, offer, &ahead) {
                Err(error) if error.may_pass() && left.is_zero() => {
                    let waited = began.elapsed();
                    let last = Box::new(error);
                    return Err(ReserveError::TimedOut { waited, last });
                }
                Err(error) if error.may_pass() => {}
                done => {
                    // Before the lock is opened: the next one must not find somebody who waits no more.
                    drop(ticket);
                    return done;
                }
            }
            drop(locked);
            watch.wait(POLL.min(left));
        }
    }
}

/// Waits until the last of those ahead who may get what is wanted has left, at most for `left`. It is also over after a
/// while, because one before the last may have left what nobody else ahead wants.
fn until_one_leaves(ticket: &Ticket, ahead: &[Waiter], wants: &[WaitedFor], left: Duration) -> LedgerResult<()> {
    let many = u32::try_from(ahead.len()).unwrap_or(u32::MAX);
    let most = POLL.saturating_add(LONGER_FOR_EACH.saturating_mul(many)).min(left);
    let Some(last) = ahead.iter().rev().find(|waiter| waiter.competes(wants)) else {
        return Ok(());
    };
    let began = Instant::now();
    while !ticket.has_left(last)? {
        let more = most.saturating_sub(began.elapsed());
        if more.is_zero() {
            break;
        }
        std::thread::sleep(POLL.min(more));
    }
    Ok(())
}
