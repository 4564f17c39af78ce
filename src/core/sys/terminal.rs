//! How a process gives up its controlling terminal.
//!
//! A process with a controlling terminal can be made to read from it, and everything that it starts can push characters
//! into it (TIOCSTI, ioctl_tty(2)), as if the person in front of it had typed them.

#![allow(unsafe_code)]

use nix::errno::Errno;
use nix::libc;
use std::mem::MaybeUninit;

/// Gives up the controlling terminal of this process, if it has one. Its number, its parent and its process group stay
/// as they are: a shell still controls it as a job, and Ctrl-C still reaches it. If it leads the session of the
/// terminal, the kernel takes the terminal from the session, and Ctrl-C reaches nobody.
///
/// Only system calls: a child between fork(2) and execve(2) may call it.
///
/// # Errors
/// Returns the kernel's error if the process has a terminal and keeps it.
pub fn leave() -> Result<(), Errno> {
    // SAFETY: the path is a C string. The terminal is named by no other descriptor that this process must have.
    let terminal = unsafe {
        libc::open(
            c"/dev/tty".as_ptr(),
            libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC | libc::O_NONBLOCK,
        )
    };
    let result = match terminal {
        // ENXIO: it has none (tty(4)).
        -1 if Errno::last() == Errno::ENXIO => Ok(()),
        // A `/dev` without the file, or one of something else: the standard streams may be the terminal.
        -1 => (0..3).map(leave_this).find(Result::is_ok).unwrap_or(Ok(())),
        terminal => leave_this(terminal),
    };
    if terminal >= 0 {
        // SAFETY: it was opened above, and nothing else owns it.
        unsafe { libc::close(terminal) };
    }
    result
}

/// Gives up the controlling terminal `terminal`.
fn leave_this(terminal: libc::c_int) -> Result<(), Errno> {
    let mut before = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: all fields are numbers or null pointers, for which zero is a value: no flags, an empty mask.
    let mut ignore: libc::sigaction = unsafe { std::mem::zeroed() };
    ignore.sa_sigaction = libc::SIG_IGN;
    // The kernel sends SIGHUP to the group in the foreground if the leader of a session gives up its terminal, and this
    // process may be in that group (ioctl_tty(2)).
    // SAFETY: both pointers are valid. The new action calls no function.
    let is_ignored = unsafe { libc::sigaction(libc::SIGHUP, &raw const ignore, before.as_mut_ptr()) } == 0;
    // SAFETY: a call without an argument on a descriptor.
    let result = Errno::result(unsafe { libc::ioctl(terminal, libc::TIOCNOTTY) }).map(drop);
    if is_ignored {
        // SAFETY: the call that succeeded filled the structure.
        unsafe { libc::sigaction(libc::SIGHUP, before.as_ptr(), std::ptr::null_mut()) };
    }
    result
}
