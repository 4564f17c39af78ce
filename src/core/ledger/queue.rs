//! Who waits for a share, in the order of their coming.
//!
//! A waiter has a ticket: a file in the directory `queue` of the ledger, whose name is its number in the order. The
//! waiter holds a lock on the file (flock(2)), which the kernel opens when the waiter ends in any way. A ticket without
//! a lock was left by a process that was killed: it counts as nothing, and the next process that has the ledger's lock
//! removes it.
//!
//! A ticket gets its number while the ledger is locked, so every ticket with a lower number was there before. It gets
//! its lock and its text under another name and is then renamed: every reader, with or without the ledger's lock, finds
//! a ticket that is locked and complete. The broker writes a user's ticket again in the same way
//! when root begins or ceases to come after that user.

mod listed;

pub use listed::QueuedStart;

use super::directory::LedgerDirectory;
use super::error::LedgerResult;
use super::events::EventKind;
use super::store::{Ledger, Locked};
use super::utc::clock;
use super::waiter::{WaitedFor, Waiter};
use crate::error::Context;
use crate::root::Missing;
use rustix::fs::{FlockOperation, Timestamps, flock, fstat, futimens};
use rustix::io::{Errno, retry_on_intr};
use std::fs::File;
use std::io::{PipeReader, Write};
use std::os::fd::OwnedFd;

const DIRECTORY: &str = "queue";

/// A ticket until it is locked and written. One name for all: the ledger's lock lets one process in, which removes what
/// one that was killed left.
const NEW: &str = "new";

/// The stack of a thread that waits for a lock: the least that every architecture allows.
const SMALL_STACK: usize = 64 << 10;

/// A longer ticket was not written by tranche: the largest plan has a few thousand shares.
const MOST_BYTES: u64 = 1 << 20;

/// A place in the queue. It is given up when this is dropped, and when its process ends.
#[derive(Debug)]
pub struct Ticket {
    number: u64,
    queue: LedgerDirectory,
    lock: File,
}

impl Ticket {
    /// Its number in the order.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Those who wait since before, in their order.
    ///
    /// # Errors
    /// Returns an error if the queue cannot be read.
    pub fn ahead(&self) -> LedgerResult<Vec<Waiter>> {
        waiters(&self.queue, &|number| number >= self.number, &mut |_| Ok(()))
    }

    /// When a ticket was made, written again or removed last, in the unit of the file system: two changes within a few
    /// milliseconds have one time.
    ///
    /// # Errors
    /// Returns an error if the queue cannot be looked at.
    pub fn changed_at(&self) -> LedgerResult<(i64, i64)> {
        let status = self.queue.status()?;
        Ok((status.st_mtime, i64::try_from(status.st_mtime_nsec).unwrap_or_default()))
    }

    /// Returns a descriptor that hangs up when `waiter` has left, or when its ticket was written again.
    ///
    /// The kernel wakes those who wait for the lock of a ticket, however its owner ends. That wait has no time limit,
    /// so a thread of its own waits.
    ///
    /// # Errors
    /// Returns an error if the ticket cannot be opened, or if no thread can be started.
    pub fn leaving(&self, waiter: &Waiter) -> LedgerResult<PipeReader> {
        let name = name_of(waiter.number);
        let about = self.queue.path(&name);
        let file = self.queue.open(&name)?;
        let (reader, writer) = std::io::pipe().about(about.display(), "cannot be waited for")?;
        let wait = move || {
            // What could not be locked is not waited for, and looked at again.
            let _ = file.map(|file| retry_on_intr(|| flock(&file, FlockOperation::LockShared)));
            drop(writer);
        };
        let started = std::thread::Builder::new().stack_size(SMALL_STACK).spawn(wait);
        started.about(about.display(), "cannot be waited for")?;
        Ok(reader)
    }

    /// Writes anew what is waited for, while the ledger is locked. With nothing, nobody comes after this ticket.
    ///
    /// # Errors
    /// Returns an error if the ticket cannot be written; it is then as it was.
    pub fn write_again(&mut self, locked: &Locked<'_>, wants: &[WaitedFor]) -> LedgerResult<()> {
        let before = fstat(&self.lock).about(self.queue.path(&name_of(self.number)).display(), "cannot be read")?;
        self.lock = locked.write_ticket(&self.queue, self.number, wants, |file| {
            // People see since when it waits.
            let since = rustix::fs::Timespec {
                tv_sec: before.st_mtime,
                tv_nsec: before.st_mtime_nsec as _,
            };
            futimens(
                file,
                &Timestamps {
                    last_access: since,
                    last_modification: since,
                },
            )
        })?;
        Ok(())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // A ticket that stays has no lock any more, so it counts as nothing and is removed later.
        drop(self.queue.remove(&name_of(self.number)));
    }
}

impl Ledger {
    /// The directory with the tickets; `None` if nobody has waited since the ledger was made, and it is not to be made.
    pub(super) fn queue(&self, missing: Missing) -> LedgerResult<Option<LedgerDirectory>> {
        Ok(self.directory().below(DIRECTORY, missing)?)
    }
}

impl Locked<'_> {
    /// Those who wait, in the order of their coming. Tickets of processes that were killed are removed.
    ///
    /// # Errors
    /// Returns an error if the queue cannot be read, or if a ticket cannot be removed.
    pub fn waiters(&self) -> LedgerResult<Vec<Waiter>> {
        self.waiters_but(&|_| false)
    }

    /// As [`Locked::waiters`], without tickets with these numbers, which are not read.
    ///
    /// # Errors
    /// As [`Locked::waiters`].
    pub fn waiters_but(&self, is_known: &dyn Fn(u64) -> bool) -> LedgerResult<Vec<Waiter>> {
        match self.ledger().queue(Missing::Leave)? {
            Some(queue) => {
                // Nobody else makes a ticket while this has the lock, so this one was left.
                queue.remove(NEW)?;
                waiters(&queue, is_known, &mut |name| {
                    self.note_killed(&queue, name);
                    Ok(queue.remove(name)?)
                })
            }
            None => Ok(Vec::new()),
        }
    }

    /// Records that the process of the ticket `name` waits no more. What cannot be read of it costs the event.
    fn note_killed(&self, queue: &LedgerDirectory, name: &str) {
        let Ok(Some(file)) = queue.open(name) else { return };
        let Ok(status) = fstat(&file) else { return };
        let text = queue.read_file(name, file, MOST_BYTES).unwrap_or_default();
        let wants: Vec<WaitedFor> = serde_json::from_slice(&text).unwrap_or_default();
        let since = u64::try_from(status.st_mtime).unwrap_or(0);
        self.note_wait(EventKind::Left, clock().saturating_sub(since), &wants, status.st_uid);
    }

    /// Takes a place at the end of the queue.
    ///
    /// # Errors
    /// Returns an error if the ticket cannot be made.
    pub fn line_up(&self, wants: &[WaitedFor]) -> LedgerResult<Ticket> {
        let ledger = self.ledger();
        let queue = ledger.queue(Missing::Make)?;
        let queue = queue.ok_or_else(|| ledger.failed(DIRECTORY, "was removed while it was created"))?;
        let numbers = queue.names()?.into_iter().filter_map(|name| number_of(name.to_str()?));
        let number = numbers.max().unwrap_or(0).saturating_add(1);
        let lock = self.write_ticket(&queue, number, wants, |_| Ok(()))?;
        Ok(Ticket { number, queue, lock })
    }

    /// Writes a ticket, which is locked and has its `times` when it gets its name.
    fn write_ticket(
        &self,
        queue: &LedgerDirectory,
        number: u64,
        wants: &[WaitedFor],
        times: impl FnOnce(&File) -> rustix::io::Result<()>,
    ) -> LedgerResult<File> {
        let about = queue.path(NEW);
        let text = serde_json::to_string(wants).about(about.display(), "cannot be written")?;
        let mut file = File::from(queue.create_anew(NEW)?);
        // Other processes open it only under its final name, so none of them can have locked it.
        let locked = flock(&file, FlockOperation::NonBlockingLockExclusive).about(about.display(), "cannot be locked");
        let written = locked.and_then(|()| {
            let written = file.write_all(text.as_bytes());
            written.about(about.display(), "cannot be written")?;
            times(&file).about(about.display(), "cannot be written")
        });
        let placed = written.and_then(|()| queue.rename(NEW, &name_of(number)));
        placed.inspect_err(|_| queue.discard(NEW))?;
        Ok(file)
    }
}

/// The live tickets in `queue`, by number, without those that `is_left_out`. `dead` is called with the name of each
/// that is not live.
fn waiters(
    queue: &LedgerDirectory,
    is_left_out: &dyn Fn(u64) -> bool,
    dead: &mut dyn FnMut(&str) -> LedgerResult<()>,
) -> LedgerResult<Vec<Waiter>> {
    let mut waiters = Vec::new();
    for name in queue.names()? {
        let Some((name, number)) = name.to_str().and_then(|name| Some((name, number_of(name)?))) else {
            continue;
        };
        if is_left_out(number) {
            continue;
        }
        let Some(file) = open_live(queue, name)? else {
            dead(name)?;
            continue;
        };
        let bytes = queue.read_file(name, file, MOST_BYTES)?;
        let wants = serde_json::from_slice::<Vec<WaitedFor>>(&bytes).ok();
        let wants = wants.map(Into::into);
        waiters.push(Waiter { number, wants });
    }
    waiters.sort_unstable_by_key(|waiter| waiter.number);
    Ok(waiters)
}

/// The ticket `name`, if a process holds its lock.
fn open_live(queue: &LedgerDirectory, name: &str) -> LedgerResult<Option<OwnedFd>> {
    let Some(file) = queue.open(name)? else {
        return Ok(None);
    };
    // A shared lock: two processes that look at one ticket do not take one another for its owner.
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(Errno::WOULDBLOCK) => Ok(Some(file)),
        tried => Ok(tried
            .map(|()| None)
            .about(queue.path(name).display(), "cannot be locked")?),
    }
}

/// Twenty digits, so that names sort as their numbers do.
fn name_of(number: u64) -> String {
    format!("{number:020}")
}

fn number_of(name: &str) -> Option<u64> {
    (name.len() == 20).then(|| name.parse().ok()).flatten()
}

#[cfg(test)]
mod tests;
