//! Refreshes at the start and after every change, for machines without systemd and for containers.
//!
//! Changes of files are seen by inotify. The kernel reports none in `/proc` and `/sys`, so those are compared at an
//! interval. An event only leads to a comparison, and only a difference to a refresh.

mod events;

use super::options::{RefreshOptions, RefreshPlace};
use super::signs::{self, Sign};
use super::{Refresh, Refreshed};
use events::Events;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tranche_core::error::{Context, Error, Kind, Result, line};
use tranche_plan::host_file::HostFile;

/// How long no event may come before the host is looked at: a driver is installed in hundreds of steps.
const QUIET: Duration = Duration::from_millis(300);

/// How long events may come before the host is looked at nevertheless.
const MOST_UNREST: Duration = Duration::from_secs(5);

/// The least time between two refreshes: a host that changes all the time is not examined all the time.
const PAUSE: Duration = Duration::from_secs(1);

/// After how long a refresh that failed is tried again although nothing has changed: a driver may take long to start.
const RETRY: Duration = Duration::from_secs(60);

/// Refreshes until `stop` can be read: at the start, after each change that the kernel reports, and after each
/// `interval` in which what the kernel does not report has changed. `note` gets a line about each refresh that changed
/// anything or failed.
///
/// # Errors
/// Returns an error if the options are wrong, or if it cannot run. A refresh that fails later does not end it.
pub fn watch(
    options: RefreshOptions,
    interval: Duration,
    stop: BorrowedFd<'_>,
    note: impl Fn(&str) + Send + 'static,
) -> Result<()> {
    // The host is looked at by a thread, so that this process ends at once when it is asked to: a refresh that is cut
    // off leaves old or new files.
    let (ended, working) = UnixStream::pair().about("watch", "cannot start")?;
    let worker = std::thread::Builder::new().spawn(move || {
        let _working = working;
        work(&options, interval, &note)
    });
    let worker = worker.about("watch", "cannot start")?;
    let mut waiting = [
        PollFd::new(stop, PollFlags::POLLIN),
        PollFd::new(ended.as_fd(), PollFlags::POLLIN),
    ];
    while let Ok(0) | Err(nix::errno::Errno::EINTR) = poll(&mut waiting, PollTimeout::NONE) {}
    if waiting[0].any() == Some(true) {
        return Ok(());
    }
    match worker.join() {
        Ok(Err(error)) => Err(error),
        Ok(Ok(())) | Err(_) => Err(Error::failed("watch", "ended by itself")),
    }
}

/// Looks at the host for ever.
///
/// # Errors
/// Returns an error if the options name a place that does not exist.
fn work(options: &RefreshOptions, interval: Duration, note: &dyn Fn(&str)) -> Result<()> {
    let place = options.place()?;
    let mut watcher = Watcher::new(options, &place, note)?;
    let (events, problem) = Events::open(interval);
    problem.as_deref().into_iter().for_each(note);
    watcher.start()?;
    loop {
        // What happens from here on wakes the wait below.
        events.watch(&watcher.directories());
        if let Some(why) = watcher.change() {
            watcher.refresh(&why);
            std::thread::sleep(PAUSE);
            continue;
        }
        if events.wait(interval) {
            settle(&events);
        }
    }
}

/// Waits until no more events come.
fn settle(events: &Events) {
    let until = Instant::now() + MOST_UNREST;
    while Instant::now() < until && events.wait(QUIET) {}
}

/// What the last refresh saw, and what was printed about it.
struct Watcher<'a> {
    options: &'a RefreshOptions,
    place: &'a RefreshPlace,
    note: &'a dyn Fn(&str),
    signs: Vec<Sign>,
    /// Whether there are files of a refresh, which somebody may change.
    has_files: bool,
    retry: Option<Instant>,
    /// The failure that was printed last.
    complaint: Option<String>,
}

impl<'a> Watcher<'a> {
    fn new(options: &'a RefreshOptions, place: &'a RefreshPlace, note: &'a dyn Fn(&str)) -> Result<Self> {
        Ok(Self {
            options,
            place,
            note,
            signs: signs::now(options, place, &[])?,
            has_files: false,
            retry: None,
            complaint: None,
        })
    }

    /// Why another refresh is needed, as a clause.
    fn change(&self) -> Option<String> {
        if let Some(change) = self.signs.iter().find_map(Sign::change) {
            return Some(change);
        }
        if self.has_files
            && let Err(error) = HostFile::read(&self.place.state_dir)
        {
            return Some(line(&error));
        }
        let is_due = self.retry.is_some_and(|retry| Instant::now() >= retry);
        is_due.then(|| "tried again".to_owned())
    }

    /// Refreshes for the first time, and prints a line whether or not that has changed anything.
    ///
    /// # Errors
    /// Returns an error if the options are wrong; other failures are printed.
    fn start(&mut self) -> Result<()> {
        match self.attempt() {
            Err(error) if error.kind() == Kind::Usage => Err(error),
            result => {
                self.take("started", result, true);
                Ok(())
            }
        }
    }

    /// Refreshes, and prints a line if that has changed anything, or failed in another way than before.
    fn refresh(&mut self, why: &str) {
        let result = self.attempt();
        self.take(why, result, false);
    }

    fn attempt(&mut self) -> Result<Refreshed> {
        // In case of a failure, these show when to try again.
        self.signs = signs::now(self.options, self.place, &[])?;
        let mut notes = Vec::new();
        let refreshed = Refresh::begin(self.options, false).and_then(|refresh| refresh.run(&mut notes));
        notes.iter().for_each(|line| (self.note)(line));
        refreshed
    }

    /// Keeps what an attempt saw, and prints what is new. `says_all`: also that nothing has changed.
    fn take(&mut self, why: &str, result: Result<Refreshed>, says_all: bool) {
        self.has_files = result.is_ok();
        self.retry = None;
        let complaint = match result {
            Ok(refreshed) => {
                let is_complete = refreshed.outcome.is_complete() && refreshed.wrong_policy.is_none();
                if refreshed.report.is_changed() || says_all {
                    (self.note)(&format!("{why}: {}", refreshed.report.line()));
                }
                self.signs = refreshed.signs;
                self.retry = (!is_complete).then(|| Instant::now() + RETRY);
                let missing = refreshed.outcome.missing();
                let missing = missing.map(|missing| format!("not complete: {missing}"));
                missing.or(refreshed.wrong_policy)
            }
            Err(error) => {
                self.retry = (error.kind() != Kind::Nothing).then(|| Instant::now() + RETRY);
                Some(line(&error))
            }
        };
        if let Some(complaint) = complaint.as_ref().filter(|_| complaint != self.complaint) {
            (self.note)(&format!("{why}: {complaint}"));
        }
        self.complaint = complaint;
    }

    /// The directories in which a change may matter, each with whether the end of a write to a file in it may.
    fn directories(&self) -> Vec<(PathBuf, bool)> {
        self.signs.iter().flat_map(Sign::directories).collect()
    }
}
