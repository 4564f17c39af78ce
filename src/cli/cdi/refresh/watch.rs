//! `tranche cdi watch`: refreshes at the start and after every change, for machines without systemd and for containers.
//!
//! Changes of files are seen by inotify. The kernel reports none in `/proc` and `/sys`, so those are compared at an
//! interval. An event only leads to a comparison, and only a difference to a refresh.

mod events;

use super::arguments::{RefreshArgs, RefreshPlace};
use super::signs::{self, Sign};
use super::{PlainNames, Refreshed, lock, refresh};
use crate::cli::{out, stop};
use crate::error::{Context, Error, Kind, line};
use crate::host_file::HostFile;
use crate::types::WaitTime;
use anyhow::Result;
use events::Events;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long no event may come before the host is looked at: a driver is installed in hundreds of steps.
const QUIET: Duration = Duration::from_millis(300);

/// How long events may come before the host is looked at nevertheless.
const MOST_UNREST: Duration = Duration::from_secs(5);

/// The least time between two refreshes: a host that changes all the time is not examined all the time.
const PAUSE: Duration = Duration::from_secs(1);

/// After how long a refresh that failed is tried again although nothing has changed: a driver may take long to start.
const RETRY: Duration = Duration::from_secs(60);

/// The options of `tranche cdi watch`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct WatchArgs {
    #[command(flatten)]
    how: RefreshArgs,
    /// How often to look for changes in /proc and /sys, of which the kernel sends no event: the driver's module, GPUs that
    /// come or go
    #[arg(long, value_name = "TIME", default_value = "10s", help_heading = None)]
    interval: WaitTime,
}

pub(in crate::cli::cdi) fn run(mut args: WatchArgs) -> Result<ExitCode> {
    args.how.at.look.ignore_environment = true;
    let interval = args.interval.get();
    if interval.is_zero() {
        return Err(Error::usage("--interval", "is zero")
            .hint("give a time such as 10s")
            .into());
    }
    let stop = stop::signals("watch")?;
    // The host is looked at by a thread, so that this process ends at once when it is asked to: a refresh that is cut off
    // leaves old or new files.
    let (ended, working) = UnixStream::pair().about("watch", "cannot start")?;
    let worker = std::thread::Builder::new().spawn(move || {
        let _working = working;
        work(&args.how, interval)
    });
    let worker = worker.about("watch", "cannot start")?;
    let mut waiting = [
        PollFd::new(stop.as_fd(), PollFlags::POLLIN),
        PollFd::new(ended.as_fd(), PollFlags::POLLIN),
    ];
    while let Ok(0) | Err(nix::errno::Errno::EINTR) = poll(&mut waiting, PollTimeout::NONE) {}
    if waiting[0].any() == Some(true) {
        return Ok(ExitCode::SUCCESS);
    }
    match worker.join() {
        Ok(Err(error)) => Err(error),
        Ok(Ok(())) | Err(_) => Err(Error::failed("watch", "ended by itself").into()),
    }
}

/// Looks at the host for ever.
///
/// # Errors
/// Returns an error if the options name a place that does not exist.
fn work(args: &RefreshArgs, interval: Duration) -> Result<()> {
    let place = args.place()?;
    let mut watcher = Watcher::new(args, &place)?;
    let events = Events::open(interval);
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
    args: &'a RefreshArgs,
    place: &'a RefreshPlace,
    signs: Vec<Sign>,
    /// Whether there are files of a refresh, which somebody may change.
    has_files: bool,
    retry: Option<Instant>,
    /// The failure that was printed last.
    complaint: Option<String>,
}

impl<'a> Watcher<'a> {
    fn new(args: &'a RefreshArgs, place: &'a RefreshPlace) -> Result<Self> {
        Ok(Self {
            args,
            place,
            signs: signs::now(args, place, &[])?,
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
            Err(error) if error.downcast_ref().map(Error::kind) == Some(Kind::Usage) => Err(error),
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
        self.signs = signs::now(self.args, self.place, &[])?;
        let _lock = lock(self.args, self.place)?;
        refresh(self.args, self.place, false, &PlainNames::UnlessDefined)
    }

    /// Keeps what an attempt saw, and prints what is new. `says_all`: also that nothing has changed.
    fn take(&mut self, why: &str, result: Result<Refreshed>, says_all: bool) {
        self.has_files = result.is_ok();
        self.retry = None;
        let complaint = match result {
            Ok(refreshed) => {
                let is_complete = refreshed.outcome.is_complete();
                if refreshed.report.is_changed() || says_all {
                    out::note(format_args!("{why}: {}", refreshed.report.line()));
                }
                self.signs = refreshed.signs;
                self.retry = (!is_complete).then(|| Instant::now() + RETRY);
                refreshed
                    .outcome
                    .missing()
                    .map(|missing| format!("not complete: {missing}"))
            }
            Err(error) => {
                let kind = error.downcast_ref().map(Error::kind);
                self.retry = (kind != Some(Kind::Nothing)).then(|| Instant::now() + RETRY);
                Some(line(error.as_ref()))
            }
        };
        if let Some(complaint) = complaint.as_ref().filter(|_| complaint != self.complaint) {
            out::note(format_args!("{why}: {complaint}"));
        }
        self.complaint = complaint;
    }

    /// The directories in which a change may matter, each with whether the end of a write to a file in it may.
    fn directories(&self) -> Vec<(PathBuf, bool)> {
        self.signs.iter().flat_map(Sign::directories).collect()
    }
}
