//! Processes that end together, whatever they fork.
//!
//! A process that forks, calls `setsid` and lets its parent die is in nobody's process group and is nobody's child. The one
//! thing that it cannot leave is its pid namespace, and the kernel kills everything in a namespace when the namespace's
//! first process dies (pid_namespaces(7)).

#![allow(unsafe_code)]

use nix::errno::Errno;
use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use std::io;
use std::time::{Duration, Instant};

/// How long the kernel may take to end the processes: one that is stuck in the driver does not die before the driver lets
/// it go, and we do not wait for that.
const PATIENCE: Duration = Duration::from_secs(2);

/// A pid namespace whose first process does nothing but be there. When this is dropped, everything in the namespace ends;
/// also when the thread that made this ends, so when our own process is killed.
pub struct Nursery {
    first: Pid,
}

impl Nursery {
    /// Makes the namespace. What this thread starts from now on is in it; once this is dropped, this thread can start no
    /// process any more. So it wants a thread of its own, which lives as long as the nursery is needed.
    ///
    /// # Errors
    /// `EPERM` for who is not root (`CAP_SYS_ADMIN`); limits on processes or namespaces.
    pub fn of_this_thread() -> io::Result<Self> {
        unshare(CloneFlags::CLONE_NEWPID)?;
        // SAFETY: the child of a process with threads may only use functions that are safe in a signal handler. `be_there`
        // uses system calls alone and does not return.
        match unsafe { fork() }? {
            ForkResult::Child => be_there(),
            ForkResult::Parent { child } => Ok(Self { first: child }),
        }
    }
}

/// The life of the first process: no file of ours stays open in it, and it ends with the thread that made it.
fn be_there() -> ! {
    // SAFETY: system calls on plain numbers; nothing of the parent's memory is touched.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) != 0 {
            // Before Linux 5.9.
            for fd in 0..1024 {
                libc::close(fd);
            }
        }
        loop {
            // It inherits orphans; they stay zombies, and go with the namespace.
            libc::pause();
        }
    }
}

impl Drop for Nursery {
    fn drop(&mut self) {
        // It is our child and was not waited for, so the number is still its own.
        if kill(self.first, Signal::SIGKILL).is_err() {
            return;
        }
        let until = Instant::now() + PATIENCE;
        loop {
            match waitpid(self.first, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::EINTR) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_micros(100));
                }
                _ => return,
            }
        }
    }
}
