//! The lock around every change of the ledger.

use super::directory::LedgerDirectory;
use crate::error::{Context, Error, Result};
use rustix::fs::{FlockOperation, flock, fstat, major, minor};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The name of the file that is locked.
pub(super) const FILE: &str = "lock";

/// How long to wait for the lock: less than the ten seconds that an engine gives the hook, so that the hook can report
/// it.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);

/// The lock, held until this is dropped. The kernel opens it when its holder ends in any way.
#[derive(Debug)]
pub struct Lock {
    _file: OwnedFd,
    _directory: Option<OwnedFd>,
}

/// Waits for the lock of the file `name` alone.
///
/// Unlike [`take`], it does not lock the directory: the broker holds its lock for as long as it runs, and a refresh
/// takes another one in the same directory meanwhile.
///
/// # Errors
/// Returns an error if a process has held it for `patience`. The error names that process.
pub fn take_file(directory: &LedgerDirectory, name: &str, patience: Duration) -> Result<Lock> {
    Ok(Lock {
        _file: present_file(directory, name, Instant::now() + patience, patience)?,
        _directory: None,
    })
}

/// Waits for the lock around the content of a directory.
///
/// Locked are the file `name`, which has no other purpose, and then the directory. Another program may remove the
/// file while it is locked, and the next process makes a new one and locks that; the directory is still the same one.
///
/// # Errors
/// Returns an error if a process has held it for `patience`. The error names that process.
pub(super) fn take(directory: &LedgerDirectory, name: &str, patience: Duration) -> Result<Lock> {
    let deadline = Instant::now() + patience;
    let file = present_file(directory, name, deadline, patience)?;
    Ok(Lock {
        _file: file,
        _directory: Some(wait(directory, name, directory.again()?, deadline, patience)?),
    })
}

/// The locked file `name`, which is the one that the next process would lock.
fn present_file(directory: &LedgerDirectory, name: &str, deadline: Instant, patience: Duration) -> Result<OwnedFd> {
    loop {
        let file = wait(directory, name, directory.open_or_make(name)?, deadline, patience)?;
        // Otherwise it was removed while this process waited, and other processes lock another file now.
        if directory.is(name, &file)? {
            return Ok(file);
        }
    }
}

fn wait(
    directory: &LedgerDirectory,
    name: &str,
    file: OwnedFd,
    deadline: Instant,
    patience: Duration,
) -> Result<OwnedFd> {
    let about = directory.path(name);
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => return Ok(file),
        Err(Errno::WOULDBLOCK) => {}
        Err(e) => return Err(Error::failed(about.display(), "cannot be locked").from_source(e)),
    }
    let status = fstat(&file).about(about.display(), "cannot be read")?;
    // The kernel serves waiting processes in their order, but without a deadline. So a thread waits for the lock, and
    // this one waits for the thread until the deadline. The lock belongs to the open file and not to a thread: a thread
    // that gets the lock too late drops the file, and the lock with it.
    let (send, receive) = channel();
    let waiting = std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
        let locked = loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Err(Errno::INTR) => {}
                result => break result,
            }
        };
        drop(send.send(locked.map(|()| file)));
    });
    waiting.about(about.display(), "cannot be waited for")?;
    match receive.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        Ok(locked) => locked.about(about.display(), "cannot be locked"),
        Err(RecvTimeoutError::Disconnected) => Err(Error::failed(about.display(), "cannot be waited for")),
        Err(RecvTimeoutError::Timeout) => {
            let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
            let pid = holder(&locks, status.st_dev, status.st_ino);
            let who = pid.map_or_else(|| "a process that cannot be seen from here".to_owned(), describe);
            let what = format!("has been held for {} s by {who}", patience.as_secs());
            Err(Error::failed(about.display(), what).hint("end that process if it hangs"))
        }
    }
}

/// The process that holds a lock on this file, in the text of `/proc/locks` (proc(5)): a line each, like
/// `1: FLOCK  ADVISORY  WRITE 4242 00:19:1234 0 EOF`; the line of a waiting process has `->` as its second word.
pub(super) fn holder(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let file = format!("{:02x}:{:02x}:{inode}", major(device), minor(device));
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words.get(1..6)? {
            ["FLOCK", _, _, pid, what] if *what == file => pid.parse().ok(),
            _ => None,
        }
    })
}

fn describe(pid: u32) -> String {
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(command) => format!("process {pid} ({})", command.trim_end()),
        Err(_) => format!("process {pid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_not_one_who_waits() {
        let locks = "\
1: POSIX  ADVISORY  WRITE 100 00:1a:77 0 EOF
2: FLOCK  ADVISORY  WRITE 101 00:1b:77 0 EOF
3: FLOCK  ADVISORY  WRITE 102 00:1a:77 0 EOF
3: -> FLOCK  ADVISORY  WRITE 103 00:1a:77 0 EOF
";
        assert_eq!(holder(locks, rustix::fs::makedev(0, 0x1a), 77), Some(102));
        assert_eq!(holder(locks, rustix::fs::makedev(0, 0x1a), 78), None);
        assert_eq!(holder("\n1:\n", 0, 0), None);
    }

    #[test]
    fn who_holds_it_too_long_is_named_and_who_removes_it_gains_nothing() {
        let state = tempfile::tempdir().unwrap();
        let directory = LedgerDirectory::ledger(state.path(), crate::root::Missing::Make)
            .unwrap()
            .unwrap();
        let held = take(&directory, FILE, PATIENCE).unwrap();
        let line = take(&directory, FILE, Duration::from_millis(50))
            .unwrap_err()
            .to_string();
        let me = format!("by process {} (", std::process::id());
        assert!(line.contains(&me), "{line}");
        // One waits for this file, then it is removed, and another one locks the new one.
        let takes = |scope: &'static str| {
            let directory = LedgerDirectory::ledger(state.path(), crate::root::Missing::Make)
                .unwrap()
                .unwrap();
            take(&directory, FILE, PATIENCE).unwrap_or_else(|error| panic!("{scope}: {error}"))
        };
        let waits = |count: usize| {
            let waiting = || {
                std::fs::read_to_string("/proc/locks")
                    .unwrap()
                    .matches("-> FLOCK")
                    .count()
            };
            while waiting() < count {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        std::thread::scope(|scope| {
            let before = scope.spawn(|| drop(takes("before")));
            waits(1);
            std::fs::remove_file(state.path().join("ledger/lock")).unwrap();
            let after = scope.spawn(|| drop(takes("after")));
            waits(2);
            std::thread::sleep(Duration::from_millis(50));
            assert!(!before.is_finished() && !after.is_finished(), "two have the lock");
            drop(held);
            after.join().unwrap();
            before.join().unwrap();
        });
    }
}
