//! A handle of the process at the other end of a local socket.

#![allow(unsafe_code)]

use nix::libc;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

/// `SO_PEERPIDFD` (linux/include/uapi/asm-generic/socket.h), since Linux 6.5. No crate here has it.
const SO_PEERPIDFD: libc::c_int = 77;

/// A handle of the process that connected `socket`, which no later process with its number gets.
///
/// # Errors
/// Returns an error if the kernel has no such option, or if the process has ended and nothing is left of it.
pub fn of_peer(socket: &impl AsFd) -> io::Result<OwnedFd> {
    let mut handle: libc::c_int = -1;
    let mut size = libc::socklen_t::try_from(size_of::<libc::c_int>()).map_err(io::Error::other)?;
    let (level, socket) = (libc::SOL_SOCKET, socket.as_fd().as_raw_fd());
    let value: *mut libc::c_int = &raw mut handle;
    // SAFETY: both pointers are valid for writes during the call, and `size` is the size of what `value` points to.
    let done = unsafe { libc::getsockopt(socket, level, SO_PEERPIDFD, value.cast(), &raw mut size) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has made the descriptor for this call, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(handle) })
}
