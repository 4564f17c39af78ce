//! Notices changes of the ledger as they happen.

use super::ends::Ends;
use super::store::Ledger;
use crate::root::Missing;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

/// Notices that a book of the ledger or a ticket was written or removed. Where the kernel gives no watch (inotify(7),
/// "/proc/sys/fs/ inotify/max_user_instances"), it looks from time to time.
#[derive(Debug)]
pub struct Watch(Option<OwnedFd>);

/// How often it looks without a watch.
const WITHOUT_WATCH: Duration = Duration::from_millis(100);

impl Ledger {
    /// Watches the ledger from now on.
    pub fn watch(&self) -> Watch {
        let directory = self.directory().again().ok();
        let watch = directory.and_then(|directory| {
            let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
            let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
            let changes = WatchFlags::MOVED_TO | WatchFlags::DELETE;
            inotify::add_watch(&events, path, changes).ok()?;
            // It is made by the first one that waits.
            if let Ok(Some(queue)) = self.queue(Missing::Make)
                && let Ok(queue) = queue.again()
            {
                let path = format!("/proc/self/fd/{}", queue.as_raw_fd());
                inotify::add_watch(&events, path, changes).ok()?;
            }
            Some(events)
        });
        Watch(watch)
    }
}

impl Watch {
    /// Notices also what is renamed in `directory`, such as a state file that is written.
    pub fn also(&self, directory: &Path) {
        if let Some(events) = &self.0 {
            // Without it, a change is noticed later.
            let _ = inotify::add_watch(events, directory, WatchFlags::MOVED_TO | WatchFlags::ONLYDIR);
        }
    }
}

/// Why a wait was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// The ledger may have changed, or the time is over.
    Look,
    /// The other descriptor can be read, or its other end is closed.
    Other,
}

impl Watch {
    /// Waits for the next change, at most for `most`. It may be over earlier. It is also over when `other` can be read.
    pub fn wait_or(&self, most: Duration, other: Option<BorrowedFd<'_>>) -> Woken {
        self.wait(
            most,
            &Ends::default(),
            &other.map_or_else(Vec::new, |other| vec![(other, PollFlags::POLLIN)]),
        )
    }

    /// Waits for the next change, for one of `ends`, or for one of these events of the `others`, at most for `most`. It
    /// may be over earlier.
    pub fn wait(&self, most: Duration, ends: &Ends, others: &[(BorrowedFd<'_>, PollFlags)]) -> Woken {
        let without = self.0.is_none().then_some(WITHOUT_WATCH);
        let most = [ends.look(), without].into_iter().flatten().fold(most, Duration::min);
        // Rounded up: what is over within a millisecond is not over yet.
        let most = PollTimeout::try_from(most.saturating_add(Duration::from_millis(1))).unwrap_or(PollTimeout::MAX);
        let events = self
            .0
            .as_ref()
            .map(|events| PollFd::new(events.as_fd(), PollFlags::POLLIN));
        let mut fds: Vec<PollFd<'_>> = events.into_iter().chain(ends.descriptors()).collect();
        let own = fds.len();
        fds.extend(others.iter().map(|(fd, events)| PollFd::new(*fd, *events)));
        // A signal or an error of poll ends the wait early, and then the caller looks once more than needed.
        if !poll(&mut fds, most).is_ok_and(|ready| ready > 0) {
            return Woken::Look;
        }
        if fds.iter().skip(own).any(|fd| fd.any() == Some(true)) {
            return Woken::Other;
        }
        if let Some(events) = &self.0 {
            let mut bytes = [0; 4096];
            while rustix::io::read(events, &mut bytes).is_ok_and(|read| read > 0) {}
        }
        Woken::Look
    }
}
