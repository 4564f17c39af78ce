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

/// How long one process may hold the lock while others wait for it.
pub(super) const PATIENCE: Duration = Duration::from_secs(8);

/// So many times as long to wait for processes that hold it one after another: less than the thirty seconds that an
/// engine gives the hook, so that the hook can report it.
const QUEUE: u32 = 3;

/// How often a process that waits looks who holds the lock.
const LOOK: Duration = Duration::from_secs(1);

/// When it looks first. Nearly always the lock is got before, without a look.
const FIRST_LOOK: Duration = Duration::from_millis(100);

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
        _file: present_file(directory, name, &mut Waiting::new(patience, patience, Instant::now()))?,
        _directory: None,
    })
}

/// Waits for the lock around the content of a directory.
///
/// Locked are the file `name`, which has no other purpose, and then the directory. Another program may remove the
/// file while it is locked, and the next process makes a new one and locks that; the directory is still the same one.
///
/// # Errors
/// Returns an error if one process has held it for `patience`, and names that process; or if processes have held it one
/// after another for three times as long.
pub(super) fn take(directory: &LedgerDirectory, name: &str, patience: Duration) -> Result<Lock> {
    let mut waiting = Waiting::new(patience, patience.saturating_mul(QUEUE), Instant::now());
    let file = present_file(directory, name, &mut waiting)?;
    Ok(Lock {
        _file: file,
        _directory: Some(wait(directory, name, directory.again()?, &mut waiting)?),
    })
}

/// The locked file `name`, which is the one that the next process would lock.
fn present_file(directory: &LedgerDirectory, name: &str, waiting: &mut Waiting) -> Result<OwnedFd> {
    loop {
        let file = wait(directory, name, directory.open_or_make(name)?, waiting)?;
        // Otherwise it was removed while this process waited, and other processes lock another file now.
        if directory.is(name, &file)? {
            return Ok(file);
        }
    }
}

/// For how long it is waited, and for whom.
struct Waiting {
    /// How long one process may hold the lock.
    one: Duration,
    /// Until when it is waited at all.
    deadline: Instant,
    began: Instant,
    /// Who was seen to hold it last, and since when.
    holder: Option<(u32, Instant)>,
}

/// What a look at the holder says.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// It is waited for this long.
    Wait(Duration),
    /// This process has held it the whole time; `None` for one that cannot be seen from here.
    Held(Option<u32>),
    /// Processes have held it one after another.
    Queue,
}

impl Waiting {
    fn new(one: Duration, all: Duration, now: Instant) -> Self {
        Self {
            one,
            deadline: now + all,
            began: now,
            holder: None,
        }
    }

    /// What is done while `holder` has the lock; `None` for one that cannot be seen: it is in another pid namespace, or
    /// the kernel's list has changed while it was read.
    fn look(&mut self, holder: Option<u32>, now: Instant) -> Look {
        if let Some(holder) = holder
            && self.holder.is_none_or(|(before, _)| before != holder)
        {
            // Nobody was seen before: it counts as the holder since the wait began, [`FIRST_LOOK`] ago.
            let since = self.holder.map_or(self.began, |_| now);
            self.holder = Some((holder, since));
        }
        let seen = self.holder.filter(|(seen, _)| holder == Some(*seen));
        let all = self.deadline.saturating_duration_since(now);
        let left = seen.map_or(all, |(_, since)| {
            (since + self.one).saturating_duration_since(now).min(all)
        });
        match (left.is_zero(), seen) {
            (false, _) => Look::Wait(left.min(LOOK)),
            (true, Some((pid, since))) if now.saturating_duration_since(since) >= self.one => Look::Held(Some(pid)),
            (true, None) if self.holder.is_none() => Look::Held(None),
            (true, _) => Look::Queue,
        }
    }
}

fn wait(directory: &LedgerDirectory, name: &str, file: OwnedFd, patience: &mut Waiting) -> Result<OwnedFd> {
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
    let mut time = FIRST_LOOK.min(patience.one);
    loop {
        match receive.recv_timeout(time) {
            Ok(locked) => return locked.about(about.display(), "cannot be locked"),
            Err(RecvTimeoutError::Disconnected) => return Err(Error::failed(about.display(), "cannot be waited for")),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        let waited = patience.began.elapsed().as_secs();
        match patience.look(holder(&locks, status.st_dev, status.st_ino), Instant::now()) {
            Look::Wait(more) => time = more,
            Look::Held(pid) => {
                let who = pid.map_or_else(|| "a process that cannot be seen from here".to_owned(), describe);
                let seconds = pid.map_or(waited, |_| patience.one.as_secs());
                let what = format!("has been held for {seconds} s by {who}");
                return Err(Error::failed(about.display(), what).hint("end that process if it hangs"));
            }
            Look::Queue => {
                let others = waiters(&locks, status.st_dev, status.st_ino).saturating_sub(1);
                let what =
                    format!("was held by one process after another for {waited} s, and {others} others wait for it");
                return Err(Error::failed(about.display(), what).hint("start fewer at once, or try again"));
            }
        }
    }
}

/// How many processes wait for the lock on this file, in the text of `/proc/locks`.
fn waiters(locks: &str, device: u64, inode: u64) -> usize {
    let file = locked_file(device, inode);
    let waits = |line: &&str| line.contains("-> FLOCK") && line.split_ascii_whitespace().any(|word| word == file);
    locks.lines().filter(waits).count()
}

/// The process that holds a lock on this file, in the text of `/proc/locks` (proc(5)): a line each, like
/// `1: FLOCK  ADVISORY  WRITE 4242 00:19:1234 0 EOF`; the line of a waiting process has `->` as its second word.
pub(super) fn holder(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let file = locked_file(device, inode);
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words.get(1..6)? {
            ["FLOCK", _, _, pid, what] if *what == file => pid.parse().ok(),
            _ => None,
        }
    })
}

/// The name of a file in `/proc/locks`.
fn locked_file(device: u64, inode: u64) -> String {
    format!("{:02x}:{:02x}:{inode}", major(device), minor(device))
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
    fn the_patience_is_for_one_holder_and_not_for_the_queue() {
        let began = Instant::now();
        let at = |seconds: u64| began + Duration::from_secs(seconds);
        let new = || Waiting::new(Duration::from_secs(8), Duration::from_secs(24), began);
        // One that holds it the whole time.
        let mut one = new();
        for second in 0..8 {
            assert_eq!(one.look(Some(7), at(second)), Look::Wait(LOOK), "{second}");
        }
        assert_eq!(one.look(Some(7), at(8)), Look::Held(Some(7)));
        let mut unseen = new();
        assert_eq!(unseen.look(None, at(0)), Look::Wait(LOOK));
        assert_eq!(unseen.look(None, at(8)), Look::Wait(LOOK));
        assert_eq!(unseen.look(None, at(24)), Look::Held(None));
        // Different ones in turn, none of which is to be ended.
        let mut many = new();
        for second in 0..24 {
            let holder = u32::try_from(second).unwrap();
            assert!(matches!(many.look(Some(holder), at(second)), Look::Wait(_)), "{second}");
        }
        assert_eq!(many.look(Some(99), at(24)), Look::Queue);
        // A list that lacks the holder is no other holder.
        let mut lacking = new();
        for second in 0..8 {
            let holder = (second % 3 != 1).then_some(7);
            assert_eq!(lacking.look(holder, at(second)), Look::Wait(LOOK), "{second}");
        }
        assert_eq!(lacking.look(Some(7), at(8)), Look::Held(Some(7)));
        // The last of them hangs.
        let mut last = new();
        for second in 0..10 {
            let holder = u32::try_from(second.min(5)).unwrap();
            assert!(matches!(last.look(Some(holder), at(second)), Look::Wait(_)), "{second}");
        }
        assert_eq!(last.look(Some(5), at(13)), Look::Held(Some(5)));
        let locks =
            "1: -> FLOCK  ADVISORY  WRITE 103 00:1a:77 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 104 00:1a:78 0 EOF\n";
        assert_eq!(waiters(locks, rustix::fs::makedev(0, 0x1a), 77), 1);
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
