//! Waiting for what others hold, in the order of coming.

use super::{Claims, LockedClaims};
use crate::caller::Callers;
use crate::error::Error;
use crate::ledger::events::EventKind;
use crate::ledger::{Claim, Ends, InitProcess, LedgerError, LedgerResult, Ticket, WaitedFor, Waiter};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::PipeReader;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How often a waiter looks at the ledger although nothing has woken it.
const LOOK: Duration = Duration::from_secs(5);

/// How often a waiter whose turn has not come looks who is ahead of it: one that leaves out of turn wakes nobody.
const LOOK_AHEAD: Duration = Duration::from_secs(1);

/// After how many looks at the time of the last change those ahead are read in any case.
const MOST_LOOKS: usize = 10;

/// How much longer that is for each of those ahead.
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

    /// The process that needs it; `None` where nobody can say.
    fn process(&self) -> Option<&InitProcess> {
        None
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
        let note = |locked: &LockedClaims<'_>, kind| {
            let seconds = began.elapsed().as_secs();
            locked.locked.note_wait(kind, seconds, &wants, self.uid);
        };
        note(&locked, EventKind::Waits);
        drop(locked);
        let (mut watch, mut leaving) = (None, None);
        loop {
            if callers.has_ended() {
                note(&self.lock()?, EventKind::Left);
                return Err(LedgerError::from(nobody_waits()).into());
            }
            let left = wait.saturating_sub(began.elapsed());
            // Before it is read, so that no change is missed.
            let changed_at = ticket.changed_at()?;
            let ahead = ticket.ahead()?;
            if !left.is_zero() && !attempt.would_succeed(&ahead) {
                let place = Place {
                    ticket: &ticket,
                    ahead: &ahead,
                    changed_at,
                };
                place.until_one_leaves(attempt, &callers, left, &mut leaving)?;
                continue;
            }
            if let Err(error) = attempt.check_needed() {
                note(&self.lock()?, EventKind::Left);
                return Err(error);
            }
            // All before the attempt, so that nothing is missed that happens after it. Only those have a watch whose
            // turn has come: a user may have 128 in all (inotify(7)).
            let watch = watch.get_or_insert_with(|| self.ledger.watch());
            let books = self.books()?;
            let is_wanted = |claim: &&Claim| wants.iter().any(|wanted| wanted.device.overlaps(&claim.device));
            let ends = Ends::of(books.claims().filter(is_wanted), &self.machine);
            let locked = self.lock()?;
            match attempt.make(&locked, Some(ahead)) {
                Err(error) if A::may_pass(&error) && left.is_zero() => {
                    note(&locked, EventKind::Left);
                    return Err(A::timed_out(began.elapsed(), error));
                }
                Err(error) if A::may_pass(&error) => {}
                done => {
                    let kind = if done.is_ok() {
                        EventKind::Served
                    } else {
                        EventKind::Left
                    };
                    note(&locked, kind);
                    // Before the lock is opened: the next one must not find somebody who waits no more.
                    drop(ticket);
                    return done;
                }
            }
            drop(locked);
            let signs: Vec<_> = callers.signs().collect();
            watch.wait(LOOK.min(left), &ends, &signs);
        }
    }
}

/// The error of a start that nobody waits for any more.
pub fn nobody_waits() -> Error {
    let what = "given up, because the program that started this container has ended while a share was waited for";
    Error::failed("start", what)
}

/// A place in the queue that is not one's turn yet.
struct Place<'a> {
    ticket: &'a Ticket,
    ahead: &'a [Waiter],
    /// When the queue had changed last before `ahead` was read.
    changed_at: (i64, i64),
}

impl Place<'_> {
    /// Waits until those have left whose places have to become free before the attempt can succeed, if they leave in
    /// their order, at most for `left`. It is also over when others have left for a while, which may do as well.
    /// `leaving` is what shows that the one with this number leaves, from the last time.
    fn until_one_leaves<A: Attempt>(
        &self,
        attempt: &A,
        callers: &Callers,
        left: Duration,
        leaving: &mut Option<(u64, PipeReader)>,
    ) -> LedgerResult<()> {
        let (mut blocked, mut free) = (0, self.ahead.len());
        while free - blocked > 1 {
            let middle = blocked.midpoint(free);
            match attempt.would_succeed(self.ahead.get(middle..).unwrap_or_default()) {
                true => free = middle,
                false => blocked = middle,
            }
        }
        let Some(last) = self.ahead.get(blocked) else {
            return Ok(());
        };
        // Each has a thread, which ends when that one has left.
        let number = last.ticket();
        let sign = match leaving.take().filter(|(of, _)| *of == number) {
            Some((_, sign)) => sign,
            None => self.ticket.leaving(last)?,
        };
        let many = u32::try_from(self.ahead.len()).unwrap_or(u32::MAX);
        let look = LOOK_AHEAD
            .saturating_add(LONGER_FOR_EACH.saturating_mul(many))
            .min(left);
        for _ in 0..MOST_LOOKS {
            let mut fds: Vec<PollFd<'_>> = callers.signs().map(|(fd, events)| PollFd::new(fd, events)).collect();
            fds.push(PollFd::new(sign.as_fd(), PollFlags::empty()));
            // Rounded up: what is over within a millisecond is not over yet.
            let most = PollTimeout::try_from(look.saturating_add(Duration::from_millis(1)));
            let ready = poll(&mut fds, most.unwrap_or(PollTimeout::MAX));
            if ready != Ok(0) {
                return Ok(());
            }
            // Nothing of those ahead is read again while all of them wait.
            if look == left || self.ticket.changed_at()? != self.changed_at {
                break;
            }
        }
        *leaving = Some((number, sign));
        Ok(())
    }
}
