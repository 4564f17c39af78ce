//! A group of processes that end together, including everything that they fork.
//!
//! A process that forks, calls `setsid` and lets its parent die leaves its process group and its parent. It cannot
//! leave its pid namespace, and the kernel kills all processes of a namespace when the first one dies
//! (pid_namespaces(7)).

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

/// How long the kernel may take to end the processes. A process that is stuck in the driver ends when the driver
/// returns, which is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// A pid namespace whose first process only waits. All processes of the namespace end when this is dropped, and also
/// when the thread that made it ends, for example because the whole program is killed.
pub struct Nursery {
    first: Pid,
    /// The writing end of a pipe. The first process reads from the other end, and so notices that this program ended.
    _alive: OwnedFd,
}

impl Nursery {
    /// Makes the namespace. All processes that this thread starts from now on are in it, and after the drop the thread
    /// can start no more. So it needs a thread of its own, which lives as long as the nursery does.
    ///
    /// # Errors
    /// Returns `EPERM` without `CAP_SYS_ADMIN`, or the kernel's error about limits on processes or namespaces.
    pub fn of_this_thread() -> io::Result<Self> {
        unshare(CloneFlags::CLONE_NEWPID)?;
        // Programs that are started from now on inherit neither end.
        let (ours, alive) = pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: the child of a process with threads may only use functions that are safe in a signal handler.
        // `be_there` uses system calls alone and does not return.
        match unsafe { fork() }? {
            ForkResult::Child => be_there(ours.as_raw_fd()),
            ForkResult::Parent { child } => Ok(Self {
                first: child,
                _alive: alive,
            }),
        }
    }
}

/// What the first process does: it keeps only the pipe `alive` open, and ends with the thread that made it.
///
/// The signal alone is not enough. If the parent is killed before the child has asked for the signal, none is sent, and
/// in a pid namespace of its own the child cannot see whether its parent lives. So it also waits for the end of the
/// pipe.
fn be_there(alive: RawFd) -> ! {
    // SAFETY: system calls on plain numbers and on a local byte. The parent's memory is not touched.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::dup2(alive, 0);
        // This also closes the copy of the writing end.
        if libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0) != 0 {
            // Before Linux 5.9.
            for fd in 1..1024 {
                libc::close(fd);
            }
        }
        let mut byte = 0u8;
        // Orphans become its children. They stay zombies until the namespace ends.
        while libc::read(0, (&raw mut byte).cast(), 1) < 0 && Errno::last() == Errno::EINTR {}
        libc::_exit(0)
    }
}

impl Drop for Nursery {
    fn drop(&mut self) {
        // It is a child that was not waited for, so no other process can have its number.
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

    /// This is the case of a program that is killed before the first process has asked for the signal.
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
            // `drop` would kill it.
            let nursery = std::mem::ManuallyDrop::new(nursery);
            // SAFETY: the nursery is not dropped, so it is not closed a second time.
            assert_eq!(unsafe { libc::close(nursery._alive.as_raw_fd()) }, 0);
            assert_eq!(waitpid(first, None).unwrap(), WaitStatus::Exited(first, 0));
        });
        thread.join().unwrap();
    }
}
