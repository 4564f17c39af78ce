//! The queue as a person sees it.

use super::{MOST_BYTES, number_of};
use crate::error::Context;
use crate::ledger::error::LedgerResult;
use crate::ledger::lock;
use crate::ledger::store::Ledger;
use crate::ledger::waiter::WaitedFor;
use crate::root::Missing;
use rustix::fs::fstat;

/// A start that waits, or a person's `tranche claim create --wait`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedStart {
    /// The number of its ticket.
    pub number: u64,
    /// What may serve it, each of them alone; `None` if another version of tranche wrote its ticket.
    pub wants: Option<Vec<WaitedFor>>,
    /// Since when it waits, in seconds since 1970.
    pub since: u64,
    /// The process that waits.
    pub pid: u32,
}

impl Ledger {
    /// Those who wait now, in their order, as far as their processes can be seen from this pid namespace.
    ///
    /// This locks neither the ledger nor a ticket. A process that has just created a ticket is about to lock it, and
    /// would fail if another process had locked it first.
    ///
    /// # Errors
    /// Returns an error if the queue or the kernel's list of locks cannot be read.
    pub fn queued(&self) -> LedgerResult<Vec<QueuedStart>> {
        const LOCKS: &str = "/proc/locks";
        let Some(queue) = self.queue(Missing::Leave)? else {
            return Ok(Vec::new());
        };
        let mut names: Vec<String> = queue
            .names()?
            .into_iter()
            .filter_map(|name| name.into_string().ok())
            .collect();
        names.sort();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let locks = std::fs::read_to_string(LOCKS).about(LOCKS, "cannot be read")?;
        let mut queued = Vec::new();
        for name in names {
            let Some(number) = number_of(&name) else { continue };
            let Some(file) = queue.open(&name)? else { continue };
            let status = fstat(&file).about(queue.path(&name).display(), "cannot be read")?;
            // A ticket without a lock was left by a process that was killed.
            let Some(pid) = lock::holder(&locks, status.st_dev, status.st_ino) else {
                continue;
            };
            let wants = serde_json::from_slice(&queue.read_file(&name, file, MOST_BYTES)?).ok();
            let since = u64::try_from(status.st_mtime).unwrap_or(0);
            queued.push(QueuedStart {
                number,
                wants,
                since,
                pid,
            });
        }
        Ok(queued)
    }
}
