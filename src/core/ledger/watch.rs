//! Notices changes of the ledger as they happen.

use super::store::Ledger;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Notices that a book of the ledger was written or removed. Where the kernel gives no watch (inotify(7),
/// "/proc/sys/fs/ inotify/max_user_instances"), it only waits.
#[derive(Debug)]
pub struct Watch(Option<OwnedFd>);

impl Ledger {
    /// Watches the ledger from now on.
    pub fn watch(&self) -> Watch {
        let directory = self.directory().again().ok();
        let watch = directory.and_then(|directory| {
            let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
            let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
            inotify::add_watch(&events, path, WatchFlags::MOVED_TO | WatchFlags::DELETE).ok()?;
            Some(events)
        });
        Watch(watch)
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
    /// Waits for the next change, at most for `most`. It may be over earlier.
    pub fn wait(&self, most: Duration) {
        self.wait_or(most, None);
    }

    /// As [`Watch::wait`]. It is also over when `other` can be read.
    pub fn wait_or(&self, most: Duration, other: Option<BorrowedFd<'_>>) -> Woken {
        let most = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
        let events = self.0.as_ref().map(AsFd::as_fd);
        let mut fds: Vec<PollFd<'_>> = events
            .into_iter()
            .chain(other)
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        // A signal or an error of poll ends the wait early, and then the caller looks once more than needed.
        if !poll(&mut fds, most).is_ok_and(|ready| ready > 0) {
            return Woken::Look;
        }
        let is_other = other.is_some() && fds.last().and_then(PollFd::any) == Some(true);
        if is_other {
            return Woken::Other;
        }
        if let Some(events) = &self.0 {
            let mut bytes = [0; 4096];
            while rustix::io::read(events, &mut bytes).is_ok_and(|read| read > 0) {}
        }
        Woken::Look
    }
}
