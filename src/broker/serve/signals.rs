//! Processes that are signalled as a user.

use crate::sys::as_user::{self, Answer};
use nix::sys::signal::Signal;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// A handle of the process that has this number now, which no later process with the number gets.
pub(super) fn handle(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Sends `signal` to a process as the user `uid`; without a signal, the kernel is asked whether it might be sent.
///
/// # Errors
/// As [`as_user::signal`].
pub(super) fn signal(uid: u32, process: &OwnedFd, signal: Option<Signal>) -> io::Result<Answer> {
    let answers = as_user::signal(uid, &[process.as_fd()], signal)?;
    answers.into_iter().next().ok_or_else(|| io::Error::other("no answer"))
}
