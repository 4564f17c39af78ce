//! Descriptors that a process was started with.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, RawFd};

/// Takes over the descriptor `number`, which the parent left open for this program. No later program inherits it.
///
/// # Errors
/// Returns an error if it is a standard stream, or if it is not open.
pub fn inherited(number: RawFd) -> io::Result<File> {
    if number <= 2 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: the number is only used to ask about the descriptor, and the kernel refuses one that is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    rustix::io::fcntl_setfd(borrowed, rustix::io::FdFlags::CLOEXEC)?;
    // SAFETY: it is open. The caller calls this at the beginning of its `main`, where nothing else owns a descriptor
    // above the standard streams.
    Ok(unsafe { File::from_raw_fd(number) })
}
