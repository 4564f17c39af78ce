//! A process that cannot be taken for another one: the kernel gives the number of a process that has ended to a later
//! one.

use crate::ledger::process::stat;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};

/// The number of a process, and when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Its number in the pid namespace of this process.
    pub pid: i32,
    /// When it began, in clock ticks since the boot, in the time namespace of this process (`/proc/PID/stat`,
    /// field 22).
    pub began: u64,
}

/// A process whose number no other process gets until it has ended.
#[derive(Debug)]
pub struct HeldProcess(OwnedFd);

impl ProcessIdentity {
    /// The process that has this number now; `None` if none has, or if it has ended and is not reaped yet.
    ///
    /// # Errors
    /// Returns the kernel's error if `/proc` cannot be read.
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        let stat = match fs::read(format!("/proc/{pid}/stat")) {
            Ok(stat) => stat,
            // ESRCH: it ended between the opening and the reading.
            Err(e) if e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(nix::libc::ESRCH) => return Ok(None),
            Err(e) => return Err(e),
        };
        let began = began(&stat).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has another form")))?;
        Ok(began.map(|began| Self { pid, began }))
    }

    /// Holds the process; `None` if it has ended.
    ///
    /// # Errors
    /// Returns the kernel's error. Kernels before 5.3 have no pidfd.
    pub fn hold(self) -> io::Result<Option<HeldProcess>> {
        let pid = Pid::from_raw(self.pid).ok_or(ErrorKind::InvalidInput)?;
        let held = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(held) => HeldProcess(held),
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        // The number is that of the held process for as long as that has not ended, so what was read is of it.
        let is_same = Self::of(self.pid)? == Some(self);
        Ok((is_same && !held.has_ended()?).then_some(held))
    }
}

impl HeldProcess {
    /// Whether it has ended. Until then, its number meant no other process.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub fn has_ended(&self) -> io::Result<bool> {
        let mut fds = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
        Ok(poll(&mut fds, PollTimeout::ZERO)? > 0)
    }

    /// Kills it.
    ///
    /// # Errors
    /// Returns the kernel's error. It is no error if the process has ended already.
    pub fn kill(&self) -> io::Result<()> {
        match pidfd_send_signal(&self.0, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

/// When the process of a line of `/proc/PID/stat` began; the inner `None` for one that has ended.
fn began(line: &[u8]) -> Option<Option<u64>> {
    let stat = stat(line)?;
    Some((!stat.is_over()).then_some(stat.start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execute::Program;

    fn sleeper() -> std::process::Child {
        let mut program = Program::new("/bin/sleep");
        program.arg("1000");
        program.spawn().unwrap()
    }

    #[test]
    fn a_process_is_held_until_it_has_ended() {
        let mut child = sleeper();
        let identity = ProcessIdentity::of(child.id().cast_signed()).unwrap().unwrap();
        let held = identity.hold().unwrap().unwrap();
        assert!(!held.has_ended().unwrap());
        child.kill().unwrap();
        crate::until::until("it has ended", || held.has_ended().unwrap());
        assert!(identity.hold().unwrap().is_none(), "it is not reaped");
        child.wait().unwrap();
        assert!(identity.hold().unwrap().is_none());
        assert_eq!(ProcessIdentity::of(identity.pid).unwrap(), None);
    }

    #[test]
    fn another_process_with_the_number_is_not_the_same() {
        let me = ProcessIdentity::of(std::process::id().cast_signed()).unwrap().unwrap();
        let earlier = ProcessIdentity {
            began: me.began - 1,
            ..me
        };
        assert!(me.hold().unwrap().is_some());
        assert!(earlier.hold().unwrap().is_none());
    }

    #[test]
    fn the_name_of_a_program_may_have_any_bytes() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        for name in ["(a)", "(a) Z 1 (b)", "(\u{fffd} \n)"] {
            assert_eq!(began(format!("7 {name} {rest}").as_bytes()), Some(Some(4711)), "{name}");
        }
        assert_eq!(
            began(format!("7 (a) Z{}", rest.strip_prefix('S').unwrap()).as_bytes()),
            Some(None)
        );
        for bad in [
            "",
            "7 (a",
            "7 (a) S 1 2",
            "7 (a) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x",
        ] {
            assert_eq!(began(bad.as_bytes()), None, "{bad}");
        }
    }
}
