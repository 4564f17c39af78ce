//! The programs on whose behalf this one works, and whether they still want the result.
//!
//! An engine starts the runtime, and the low-level runtime starts a hook. If one of them ends while this process waits
//! for something, nobody waits for the container any more, but nobody ends this process either: it gets a new parent
//! and would go on. conmon, through which podman and CRI-O start the runtime, even outlives them: it leaves their
//! session, and a socket or pipe is the only tie between them.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, getppid};
use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

/// The variable by which podman and CRI-O tell conmon the descriptor through which it reports that the container was
/// created (conmon, `src/conmon.c` and `src/utils.c`). The engine has the other end.
const SYNC_PIPE: &str = "_OCI_SYNCPIPE";

/// The nearest ancestors of this process, and the engine behind conmon if it is one of them.
#[derive(Debug)]
pub struct Callers {
    parent: Pid,
    /// Readable when the process has ended (pidfd_open(2)).
    processes: Vec<OwnedFd>,
    /// Hung up when the engine has ended.
    engine: Option<OwnedFd>,
}

impl Callers {
    /// The nearest `count` ancestors: 1 for the runtime, and 2 for a hook, whose parent is the low-level runtime.
    ///
    /// Ancestors outside this pid namespace and init are left out, and so is what the kernel does not show: before
    /// Linux 5.6, the end of the parent alone is noticed.
    pub fn nearest(count: usize) -> Self {
        let mut callers = Self {
            parent: getppid(),
            processes: Vec::new(),
            engine: None,
        };
        let mut pid = Some(callers.parent);
        for _ in 0..count {
            let Some(process) = pid.filter(|pid| pid.as_raw() > 1) else {
                break;
            };
            pid = callers.add(process);
        }
        callers
    }

    /// Adds `process`, and returns its parent.
    fn add(&mut self, process: Pid) -> Option<Pid> {
        let opened = rustix::process::Pid::from_raw(process.as_raw());
        let opened = pidfd_open(opened?, PidfdFlags::empty()).ok()?;
        let directory = format!("/proc/{process}");
        if let Ok(environment) = std::fs::read(format!("{directory}/environ"))
            && let Some(descriptor) = sync_pipe(&environment)
        {
            self.engine = pidfd_getfd(&opened, descriptor, PidfdGetfdFlags::empty()).ok();
        }
        self.processes.push(opened);
        let status = std::fs::read_to_string(format!("{directory}/status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        parent.trim().parse().ok().map(Pid::from_raw)
    }

    /// Whether one of them has ended.
    pub fn has_ended(&self) -> bool {
        if getppid() != self.parent {
            return true;
        }
        let signs = self.signs();
        let mut fds: Vec<PollFd<'_>> = signs.map(|(fd, events)| PollFd::new(fd, events)).collect();
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }

    /// Descriptors, each with the events that come when one of them ends. Before Linux 5.6, the end of the parent has
    /// none.
    pub fn signs(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let processes = self.processes.iter();
        let processes = processes.map(|process| (process.as_fd(), PollFlags::POLLIN));
        // Without an event that is asked for: POLLHUP and POLLERR are reported in any case (poll(2)).
        let engine = self.engine.iter().map(|engine| (engine.as_fd(), PollFlags::empty()));
        processes.chain(engine)
    }
}

/// The descriptor that conmon's environment names.
fn sync_pipe(environment: &[u8]) -> Option<RawFd> {
    let mut variables = environment
        .split(|byte| *byte == 0)
        .filter_map(|entry| std::str::from_utf8(entry).ok());
    variables
        .find_map(|entry| entry.strip_prefix(SYNC_PIPE)?.strip_prefix('='))?
        .parse()
        .ok()
        .filter(|descriptor| *descriptor > 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_of_the_engine_is_read_from_the_environment() {
        for (environment, expected) in [
            (&b"A=1\0_OCI_SYNCPIPE=3\0B=2"[..], Some(3)),
            (b"_OCI_SYNCPIPE=12", Some(12)),
            (b"_OCI_SYNCPIPE=", None),
            (b"_OCI_SYNCPIPE=-3", None),
            (b"_OCI_SYNCPIPE=1", None),
            (b"X_OCI_SYNCPIPE=3\0\xff=1", None),
            (b"", None),
        ] {
            assert_eq!(sync_pipe(environment), expected, "{}", environment.escape_ascii());
        }
    }

    #[test]
    fn callers_that_live_have_not_ended() {
        assert!(!Callers::nearest(2).has_ended());
    }
}
