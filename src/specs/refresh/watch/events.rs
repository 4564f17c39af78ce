//! Changes of files, as the kernel reports them (inotify(7)).

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Events of the directories that are watched. Without inotify no event arrives, and each wait ends after its time.
pub(super) struct Events(Option<OwnedFd>);

impl Events {
    /// Opens a queue of events. If the kernel gives none, returns a line about it: `interval` is then the time until a
    /// change is found.
    pub(super) fn open(interval: Duration) -> (Self, Option<String>) {
        match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(queue) => (Self(Some(queue)), None),
            Err(error) => {
                let seconds = interval.as_secs_f64();
                let line = format!(
                    "inotify: {error}; changes of files are found by looking every {seconds} s (see \
                     /proc/sys/fs/inotify/max_user_instances)"
                );
                (Self(None), Some(line))
            }
        }
    }

    /// Watches these directories from now on, each with whether the end of a write to a file in it counts. A directory
    /// that does not exist is represented by the nearest parent that does. A directory that is watched already
    /// stays so.
    pub(super) fn watch(&self, directories: &[(PathBuf, bool)]) {
        let Some(queue) = &self.0 else { return };
        let mut wanted: BTreeMap<&Path, bool> = BTreeMap::new();
        for (directory, writes) in directories {
            let mut existing = directory.ancestors();
            if let Some(existing) = existing.find(|directory| directory.is_dir()) {
                // A missing directory only has to appear.
                *wanted.entry(existing).or_default() |= *writes && existing == directory;
            }
        }
        for (directory, writes) in wanted {
            let mut flags = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVED_TO | WatchFlags::MOVED_FROM;
            if writes {
                flags |= WatchFlags::CLOSE_WRITE;
            }
            if let Err(error) = inotify::add_watch(queue, directory, flags) {
                tracing::info!("{}: is not watched: {error}", directory.display());
            }
        }
    }

    /// Waits for an event, at most for `most`. Returns whether there was one. All events until then are taken.
    pub(super) fn wait(&self, most: Duration) -> bool {
        let most = PollTimeout::try_from(most).unwrap_or(PollTimeout::MAX);
        let queue = self.0.as_ref().map(AsFd::as_fd);
        let mut waiting: Vec<PollFd<'_>> = queue.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        // A signal ends the wait early, and then the host is looked at once more than needed.
        let has_event = poll(&mut waiting, most).is_ok_and(|ready| ready > 0);
        if let Some(queue) = self.0.as_ref().filter(|_| has_event) {
            let mut bytes = [0; 4096];
            while rustix::io::read(queue, &mut bytes).is_ok_and(|read| read > 0) {}
        }
        has_event
    }
}
