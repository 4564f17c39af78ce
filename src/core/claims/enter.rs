//! Entering a claim that others still hold: the hook of a container waits for it, in the queue in which starts wait
//! that reserve shares.

use super::turn::Attempt;
use super::{ClaimEntry, Claims, LockedClaims, NotEntered};
use crate::error::Error;
use crate::ledger::{Book, Change, Holder, InitProcess, LedgerError, Refused, WaitedFor, Waiter, World};
use crate::types::{Part, Subject};
use std::time::Duration;

impl Claims {
    /// As [`Claims::enter`], and waits up to `wait` for what others hold or wait for. Those who wait are served in the
    /// order of their coming; one that ends in any way leaves the queue.
    ///
    /// # Errors
    /// As [`Claims::enter`]. What could not be entered on an unused machine either is not waited for, nor is a claim
    /// that was reserved beforehand. [`NotEntered::waited`] says how long the entry was waited for.
    pub fn enter_waiting(
        &self,
        entry: &ClaimEntry,
        holder: &Holder,
        pid: Option<u32>,
        wait: Duration,
    ) -> Result<(), NotEntered> {
        let process = pid.map(|pid| self.machine.process(pid)).transpose();
        let process = process.map_err(LedgerError::from)?;
        self.take_turn(&self.entry_attempt(entry, holder, process), wait)
    }

    /// The attempt to enter, for a caller that decides by itself when it is made. `process` is the init of the
    /// container.
    pub fn entry_attempt<'a>(
        &'a self,
        entry: &'a ClaimEntry,
        holder: &'a Holder,
        process: Option<InitProcess>,
    ) -> impl Attempt<Got = (), Error = NotEntered> + 'a {
        EntryAttempt {
            claims: self,
            entry,
            holder,
            process,
        }
    }
}

struct EntryAttempt<'a> {
    claims: &'a Claims,
    entry: &'a ClaimEntry,
    holder: &'a Holder,
    process: Option<InitProcess>,
}

impl Attempt for EntryAttempt<'_> {
    type Got = ();
    type Error = NotEntered;

    fn make(&self, claims: &LockedClaims<'_>, ahead: Option<Vec<Waiter>>) -> Result<(), NotEntered> {
        let (holder, process) = (self.holder.clone(), self.process.clone());
        match ahead {
            None => claims.enter(self.entry, holder, process),
            Some(ahead) => claims.enter_after(self.entry, holder, process, ahead),
        }
    }

    fn may_pass(error: &NotEntered) -> bool {
        error.may_pass()
    }

    fn worth_waiting(&self, refused: NotEntered) -> Result<NotEntered, NotEntered> {
        match self.would_succeed(&[]) {
            true => Ok(refused),
            false => Err(refused),
        }
    }

    fn would_succeed(&self, ahead: &[Waiter]) -> bool {
        let mut unused = Book::new(self.entry.device.gpu().clone());
        unused.leave_to(ahead.to_vec());
        let ask = self
            .entry
            .ask(self.holder.clone(), self.process.clone(), self.claims.uid);
        self.claims.enter_book(&mut unused, self.entry, ask).is_ok()
    }

    fn wants(&self) -> Vec<WaitedFor> {
        let shares = match &self.entry.subject {
            Subject::Part(Part::Share(name), _) => vec![name.clone()],
            Subject::Part(Part::Any | Part::Whole, _) | Subject::Claim(..) => Vec::new(),
        };
        let device = self.entry.device.clone();
        vec![WaitedFor { device, shares }]
    }

    fn check_needed(&self) -> Result<(), NotEntered> {
        let is_gone = |process: &&InitProcess| self.claims.machine.is_gone(process);
        match self.process.as_ref().filter(is_gone) {
            None => Ok(()),
            Some(gone) => {
                let what = "has ended while its share was waited for";
                Err(LedgerError::from(Error::failed(format!("process {}", gone.pid), what)).into())
            }
        }
    }

    fn process(&self) -> Option<&InitProcess> {
        self.process.as_ref()
    }

    fn timed_out(waited: Duration, last: NotEntered) -> NotEntered {
        let waited = Some(waited);
        NotEntered { waited, ..last }
    }
}

impl LockedClaims<'_> {
    /// As [`Claims::enter`]. `process` is the init of the container, as it is recorded.
    ///
    /// # Errors
    /// As [`Claims::enter`].
    pub fn enter(&self, entry: &ClaimEntry, holder: Holder, process: Option<InitProcess>) -> Result<(), NotEntered> {
        let waiters = self.locked.waiters()?;
        self.enter_after(entry, holder, process, waiters)
    }

    /// As [`LockedClaims::enter`], for one who comes after `ahead`.
    fn enter_after(
        &self,
        entry: &ClaimEntry,
        holder: Holder,
        process: Option<InitProcess>,
        ahead: Vec<Waiter>,
    ) -> Result<(), NotEntered> {
        let ask = entry.ask(holder, process, self.claims.uid);
        let mut refused_in = None;
        let entered = self.locked.change_scanned(&entry.device, |book| {
            book.leave_to(ahead);
            self.claims.ask(book);
            let entered = self.claims.enter_book(book, entry, ask);
            if entered.is_err() {
                refused_in = Some(std::mem::replace(book, Book::new(book.gpu.clone())));
            }
            Ok((entered?, Change::Made))
        });
        entered.map_err(|error| NotEntered {
            error,
            book: refused_in.map(Box::new),
            waited: None,
        })
    }
}

impl NotEntered {
    /// Whether it may be different when something is released.
    fn may_pass(&self) -> bool {
        use Refused::{Misfit, NoneFree, Reserved, Taken, Waiting};
        let LedgerError::Refused(refused) = &self.error else {
            return false;
        };
        matches!(
            refused,
            Taken { .. } | Misfit { .. } | NoneFree | Waiting { .. } | Reserved(_)
        )
    }
}
