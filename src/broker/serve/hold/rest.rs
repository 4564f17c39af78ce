//! What is in the cgroup of a holder that is being ended, and how it is ended: each process as the user of the claim,
//! so that the kernel decides which of them the user may end.
//!
//! `cgroup.kill` is not written: it kills everything that is in the cgroup at that moment, also another user's process
//! that the user has just moved into it. What is frozen starts no other process, so that each one can be signalled by
//! itself.

use super::frozen::Frozen;
use super::members::{FoundCgroup, is_removed, processes};
use crate::serve::signals::handle;
use crate::sys::as_user::{self, Answer, MOST};
use nix::sys::signal::Signal;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tranche_core::error::line;
use tranche_core::ledger::Cgroup;
use tranche_core::text::shown;

/// For how long a cgroup is signalled again and again, and stays frozen, after the last time that fewer were left.
const PATIENCE: Duration = Duration::from_secs(1);

/// For how long in one look, however many end meanwhile.
const LONGEST: Duration = Duration::from_secs(10);

const TICK: Duration = Duration::from_millis(5);

/// What was found in a cgroup.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// How many processes were signalled, or could be.
    pub(super) own: usize,
    /// One of them.
    last: u32,
    /// A process that the user may not signal.
    foreign: Option<u32>,
    /// How many there are in pid namespaces that cannot be seen from here.
    unseen: usize,
}

impl Found {
    fn nothing_is_left(&self) -> bool {
        self.own == 0 && self.foreign.is_none() && self.unseen == 0
    }

    /// A line about what the user may not signal.
    fn refused(&self) -> Option<String> {
        match (self.foreign, self.unseen) {
            (Some(pid), _) => Some(foreign(pid)),
            (None, 0) => None,
            (None, count) => Some(format!("{count} of its processes cannot be seen by the broker")),
        }
    }
}

/// A line about a process that the user may not signal.
pub(super) fn foreign(pid: u32) -> String {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name| status.lines().find_map(|line: &str| line.strip_prefix(name));
    let program = field("Name:").map_or_else(String::new, |name| format!(" ({})", shown(name.trim())));
    let uids = field("Uid:").and_then(|uids| uids.split_ascii_whitespace().next());
    let whose = uids.map_or_else(String::new, |uid| format!(", of user {uid},"));
    format!("process {pid}{program}{whose} is not the user's to end")
}

/// Sends `signal` to each process of a cgroup that the user `uid` may signal; without a signal, nothing is sent.
///
/// # Errors
/// Returns an error if the cgroup cannot be looked at, or if nothing can be done as the user.
fn signal(cgroup: &FoundCgroup, uid: u32, signal: Option<Signal>) -> io::Result<Found> {
    let mut found = Found::default();
    cgroup.each(&mut |directory| {
        let all = processes(directory)?;
        found.unseen += all.iter().filter(|pid| **pid == 0).count();
        let seen: Vec<u32> = all.into_iter().filter(|pid| *pid != 0).collect();
        seen.chunks(MOST)
            .try_for_each(|some| found.signal(directory, some, uid, signal))
    })?;
    Ok(found)
}

impl Found {
    fn signal(&mut self, directory: BorrowedFd<'_>, pids: &[u32], uid: u32, signal: Option<Signal>) -> io::Result<()> {
        let handles: Vec<(u32, OwnedFd)> = pids.iter().filter_map(|pid| Some((*pid, handle(*pid)?))).collect();
        // After the handles were opened: a number that is still listed is that of the handle's process, or this has
        // ended.
        let now: std::collections::BTreeSet<u32> = processes(directory)?.into_iter().collect();
        let members: Vec<&(u32, OwnedFd)> = handles.iter().filter(|(pid, _)| now.contains(pid)).collect();
        let to: Vec<BorrowedFd<'_>> = members.iter().map(|(_, process)| process.as_fd()).collect();
        let answers = as_user::signal(uid, &to, signal)?;
        for ((pid, _), answer) in members.iter().zip(answers) {
            match answer {
                Answer::Sent => (self.own, self.last) = (self.own + 1, *pid),
                Answer::Ended => {}
                Answer::Refused => self.foreign = Some(*pid),
            }
        }
        Ok(())
    }
}

/// The recorded cgroup; `None` if it was removed.
fn open(record: &Cgroup) -> Result<Option<FoundCgroup>, String> {
    FoundCgroup::open(record).map_err(|error| format!("{}: {error}", record.path))
}

/// Asks every process of the recorded cgroup to end, by SIGTERM. Returns how many were asked.
///
/// # Errors
/// Returns a line if the cgroup cannot be looked at, or if a process in it is not the user's to end. The others were
/// asked then.
pub(super) fn terminate(record: &Cgroup, uid: u32) -> Result<usize, String> {
    let Some(cgroup) = open(record)? else { return Ok(0) };
    let found = try_signal(&cgroup, record, uid, Some(Signal::SIGTERM))?;
    found.refused().map_or(Ok(found.own), Err)
}

/// Kills every process of the recorded cgroup that the user may kill, until none of them is left. Meanwhile it is
/// frozen, if it is one of version 2.
///
/// # Errors
/// Returns a line if something is left, about one of these processes.
pub(super) fn kill(record: &Cgroup, uid: u32, state_dir: &Path) -> Result<(), String> {
    let Some(cgroup) = open(record)? else { return Ok(()) };
    let found = try_signal(&cgroup, record, uid, None)?;
    // What nobody may signal is not frozen either.
    if found.own == 0 {
        return found.refused().map_or(Ok(()), Err);
    }
    let (_frozen, why_not) = match Frozen::new(&cgroup, record, state_dir) {
        Ok(frozen) => (frozen, None),
        Err(error) => (None, Some(line(&error))),
    };
    let longest = Instant::now() + LONGEST;
    let (mut least, mut until) = (usize::MAX, longest);
    loop {
        let found = try_signal(&cgroup, record, uid, Some(Signal::SIGKILL))?;
        if found.own < least {
            (least, until) = (found.own, longest.min(Instant::now() + PATIENCE));
        }
        if found.nothing_is_left() {
            return Ok(());
        }
        if found.own == 0 {
            return found.refused().map_or(Ok(()), Err);
        }
        if Instant::now() >= until {
            let left = format!("process {} has not ended after SIGKILL", found.last);
            return Err(why_not.map_or(left.clone(), |why| format!("{left}; {why}")));
        }
        sleep(TICK);
    }
}

fn try_signal(cgroup: &FoundCgroup, record: &Cgroup, uid: u32, what: Option<Signal>) -> Result<Found, String> {
    match signal(cgroup, uid, what) {
        Err(error) if is_removed(&error) => Ok(Found::default()),
        Err(error) => Err(format!("{}: {error}", record.path)),
        Ok(found) => Ok(found),
    }
}

#[cfg(test)]
mod tests;
