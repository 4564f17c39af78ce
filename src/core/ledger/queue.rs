//! Who waits for a share, in the order of their coming.
//!
//! A waiter has a ticket: a file in the directory `queue` of the ledger, whose name is its number in the order. The
//! waiter holds a lock on the file (flock(2)), which the kernel opens when the waiter ends in any way. A ticket without
//! a lock was left by a process that was killed: it counts as nothing, and the next process that has the ledger's lock
//! removes it.
//!
//! A ticket gets its number while the ledger is locked, so every ticket with a lower number was there before. It gets
//! its lock and its text under another name and is then renamed: every reader, with or without the ledger's lock, finds
//! a ticket that is locked and complete.

mod listed;

pub use listed::QueuedStart;

use super::directory::LedgerDirectory;
use super::error::LedgerResult;
use super::store::{Ledger, Locked};
use super::waiter::{WaitedFor, Waiter};
use crate::error::Context;
use crate::root::Missing;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

const DIRECTORY: &str = "queue";

/// A ticket until it is locked and written. One name for all: the ledger's lock lets one process in, which removes what
/// one that was killed left.
const NEW: &str = "new";

/// A longer ticket was not written by tranche: the largest plan has a few thousand shares.
const MOST_BYTES: u64 = 1 << 20;

/// A place in the queue. It is given up when this is dropped, and when its process ends.
#[derive(Debug)]
pub struct Ticket {
    number: u64,
    queue: LedgerDirectory,
    _lock: File,
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
        let mut waiters = waiters(&self.queue, &mut |_| Ok(()))?;
        waiters.retain(|waiter| waiter.number < self.number);
        Ok(waiters)
    }

    /// Whether `waiter` waits no more.
    ///
    /// # Errors
    /// Returns an error if its ticket cannot be read.
    pub fn has_left(&self, waiter: &Waiter) -> LedgerResult<bool> {
        Ok(open_live(&self.queue, &name_of(waiter.number))?.is_none())
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
    fn queue(&self, missing: Missing) -> LedgerResult<Option<LedgerDirectory>> {
        Ok(self.directory().below(DIRECTORY, missing)?)
    }
}

impl Locked<'_> {
    /// Those who wait, in the order of their coming. Tickets of processes that were killed are removed.
    ///
    /// # Errors
    /// Returns an error if the queue cannot be read, or if a ticket cannot be removed.
    pub fn waiters(&self) -> LedgerResult<Vec<Waiter>> {
        match self.ledger().queue(Missing::Leave)? {
            Some(queue) => {
                // Nobody else makes a ticket while this has the lock, so this one was left.
                queue.remove(NEW)?;
                waiters(&queue, &mut |name| Ok(queue.remove(name)?))
            }
            None => Ok(Vec::new()),
        }
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
        let name = name_of(number);
        let about = queue.path(NEW);
        let text = serde_json::to_string(wants).about(about.display(), "cannot be written")?;
        let file = queue.create_anew(NEW)?;
        // Other processes open it only under its final name, so none of them can have locked it.
        flock(&file, FlockOperation::NonBlockingLockExclusive).about(about.display(), "cannot be locked")?;
        let mut file = File::from(file);
        let written = file.write_all(text.as_bytes());
        written.about(about.display(), "cannot be written")?;
        queue.rename(NEW, &name)?;
        Ok(Ticket {
            number,
            queue,
            _lock: file,
        })
    }
}

/// The live tickets in `queue`, by number. `dead` is called with the name of each other.
fn waiters(queue: &LedgerDirectory, dead: &mut dyn FnMut(&str) -> LedgerResult<()>) -> LedgerResult<Vec<Waiter>> {
    let mut waiters = Vec::new();
    for name in queue.names()? {
        let Some((name, number)) = name.to_str().and_then(|name| Some((name, number_of(name)?))) else {
            continue;
        };
        let Some(file) = open_live(queue, name)? else {
            dead(name)?;
            continue;
        };
        let bytes = queue.read_file(name, file, MOST_BYTES)?;
        let wants = serde_json::from_slice(&bytes).ok();
        waiters.push(Waiter { number, wants });
    }
    waiters.sort_by_key(|waiter| waiter.number);
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
