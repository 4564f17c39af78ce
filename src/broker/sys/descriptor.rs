//! Descriptors that a process was started with.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

/// A copy of the descriptor `number`, which the parent left open for this program. No later program inherits either.
///
/// # Errors
/// Returns an error if it is a standard stream, or if it is not open.
pub fn inherited(number: RawFd) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: the number is only used in fcntl(2), and the kernel refuses one that is not open. Nothing closes the
    // original.
    let original = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(original, rustix::io::FdFlags::CLOEXEC)?;
    original.try_clone_to_owned()
}
