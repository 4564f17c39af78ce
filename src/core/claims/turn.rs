//! Waiting for what others hold, in the order of coming.

use super::{Claims, LockedClaims};
use crate::caller::Callers;
use crate::error::Error;
use crate::ledger::{LedgerError, LedgerResult, Ticket, WaitedFor, Waiter};
use std::time::{Duration, Instant};

/// How often a waiter looks whether something has ended. A container that ends by itself writes nothing to the ledger.
const POLL: Duration = Duration::from_millis(100);

/// How much longer a waiter that comes later waits before it looks at all who are ahead of it, for each of them.
const LONGER_FOR_EACH: Duration = Duration::from_millis(20);

/// What somebody tries to get, and waits for if others hold it.
pub trait Attempt {
    /// What is got.
    type Got;
    /// Why it is not.
    type Error: From<LedgerError>;

    /// Tries to get it. `ahead` are served first; `None` means all who wait.
    ///
    /// # Errors
    /// Returns why it was not got.
    fn make(&self, claims: &LockedClaims<'_>, ahead: Option<Vec<Waiter>>) -> Result<Self::Got, Self::Error>;

    /// Whether a later attempt may succeed that failed with this error.
    fn may_pass(error: &Self::Error) -> bool;

    /// Returns the error of the attempt, which was `refused`, if waiting may help.
    ///
    /// # Errors
    /// Returns why the attempt would fail on an unused machine too.
    fn worth_waiting(&self, refused: Self::Error) -> Result<Self::Error, Self::Error>;

    /// Whether the attempt would succeed if nothing were held and those ahead were served first.
    fn would_succeed(&self, ahead: &[Waiter]) -> bool;

    /// What it waits for.
    fn wants(&self) -> Vec<WaitedFor>;

    /// Checks that somebody still needs it.
    ///
    /// # Errors
    /// Returns why nothing is waited for any more.
    fn check_needed(&self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The error of somebody who has waited in vain; `last` is that of the last attempt.
    fn timed_out(waited: Duration, last: Self::Error) -> Self::Error;
}

impl Claims {
    /// Makes the attempt, and waits up to `wait` for what others hold or wait for. Those who wait are served in the
    /// order of their coming. One that can also be served by what nobody ahead waits for does not wait for those
    /// ahead. A waiter that ends in any way leaves the queue.
    ///
    /// # Errors
    /// Returns the error of the first attempt if waiting cannot change it, otherwise [`Attempt::timed_out`], or an
    /// error if a program for which it is made has ended ([`Claims::called_by`]).
    pub fn take_turn<A: Attempt>(&self, attempt: &A, wait: Duration) -> Result<A::Got, A::Error> {
        let began = Instant::now();
        // Before it can be seen to wait: the program that called it may be ended as soon as that is seen.
        let callers = Callers::nearest(if wait.is_zero() { 0 } else { self.callers });
        let locked = self.lock()?;
        let refused = match attempt.make(&locked, None) {
            Err(error) if A::may_pass(&error) && !wait.is_zero() => error,
            done => return done,
        };
        attempt.worth_waiting(refused)?;
        let wants = attempt.wants();
        // Under the same lock, so that nobody can come in between.
        let ticket = locked.locked.line_up(&wants)?;
        drop(locked);
        let watch = self.ledger.watch();
        loop {
            if callers.has_ended() {
                return Err(LedgerError::from(nobody_waits()).into());
            }
            let left = wait.saturating_sub(began.elapsed());
            let ahead = ticket.ahead()?;
            if !left.is_zero() && !attempt.would_succeed(&ahead) {
                until_one_leaves(&ticket, &ahead, &wants, left)?;
                continue;
            }
            attempt.check_needed()?;
            let locked = self.lock()?;
            match attempt.make(&locked, Some(ahead)) {
                Err(error) if A::may_pass(&error) && left.is_zero() => {
                    return Err(A::timed_out(began.elapsed(), error));
                }
                Err(error) if A::may_pass(&error) => {}
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

/// The error of a start that nobody waits for any more.
pub fn nobody_waits() -> Error {
    let what = "given up, because the program that started this container has ended while a share was waited for";
    Error::failed("start", what)
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
