//! Processes that end together, whatever they fork.
//!
//! A process that forks, calls `setsid` and lets its parent die is in nobody's process group and is nobody's child. The one
//! thing that it cannot leave is its pid namespace, and the kernel kills everything in a namespace when the namespace's
//! first process dies (pid_namespaces(7)).

#![allow(unsafe_code)]

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, pipe2};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// How long the kernel may take to end the processes: one that is stuck in the driver does not die before the driver lets
/// it go, and we do not wait for that.
const PATIENCE: Duration = Duration::from_secs(2);

/// A pid namespace whose first process does nothing but be there. When this is dropped, everything in the namespace ends;
/// also when the thread that made this ends, so when our own process is killed.
pub struct Nursery {
    first: Pid,
    /// The end of a pipe from which the first process reads, for the end of our own process alone.
    _alive: OwnedFd,
}

impl Nursery {
    /// Makes the namespace. What this thread starts from now on is in it; once this is dropped, this thread can start no
    /// process any more. So it wants a thread of its own, which lives as long as the nursery is needed.
    ///
    /// # Errors
    /// `EPERM` for who is not root (`CAP_SYS_ADMIN`); limits on processes or namespaces.
    pub fn of_this_thread() -> io::Result<Self> {
        unshare(CloneFlags::CLONE_NEWPID)?;
        // No program that is started from here on has either end.
        let (ours, alive) = pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: the child of a process with threads may only use functions that are safe in a signal handler. `be_there`
        // uses system calls alone and does not return.
        match unsafe { fork() }? {
            ForkResult::Child => be_there(ours.as_raw_fd()),
            ForkResult::Parent { child } => Ok(Self {
                first: child,
                _alive: alive,
            }),
        }
    }
}

/// The life of the first process: no file stays open in it but the pipe `alive`, and it ends with the thread that made it.
///
/// A process that was killed before the child asked for a signal at its end sends none, and in a pid namespace of its own
/// the child cannot see whether its parent is still there. So it also waits for the end of the pipe.
fn be_there(alive: RawFd) -> ! {
    // SAFETY: system calls on plain numbers, and on a byte of this function's own; nothing of the parent's memory is
    // touched.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::dup2(alive, 0);
        // Our copy of the other end goes too.
        if libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0) != 0 {
            // Before Linux 5.9.
            for fd in 1..1024 {
                libc::close(fd);
            }
        }
        let mut byte = 0u8;
        // It inherits orphans; they stay zombies, and go with the namespace.
        while libc::read(0, (&raw mut byte).cast(), 1) < 0 && Errno::last() == Errno::EINTR {}
        libc::_exit(0)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As for a process that is killed before the first process of the namespace has asked for a signal.
    #[test]
    fn the_first_process_ends_with_the_pipe_though_the_thread_lives() {
        if !nix::unistd::Uid::effective().is_root() {
            println!("not run: sys::nursery: not root");
            return;
        }
        let thread = std::thread::spawn(|| {
            let nursery = Nursery::of_this_thread().unwrap();
            let first = nursery.first;
            let still = waitpid(first, Some(WaitPidFlag::WNOHANG)).unwrap();
            assert_eq!(still, WaitStatus::StillAlive);
            // Without what `drop` does, which kills it.
            let nursery = std::mem::ManuallyDrop::new(nursery);
            // SAFETY: nobody closes it a second time, since the nursery is not dropped.
            assert_eq!(unsafe { libc::close(nursery._alive.as_raw_fd()) }, 0);
            assert_eq!(waitpid(first, None).unwrap(), WaitStatus::Exited(first, 0));
        });
        thread.join().unwrap();
    }
}
