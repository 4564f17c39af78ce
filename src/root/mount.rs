//! Which mount a handle is on.

use std::io;
use std::os::fd::BorrowedFd;

use nix::sys::stat::fstat;
use rustix::fs::{AtFlags, StatxFlags, statx};

/// A mount, as far as two can be told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mount {
    /// By the kernel's number for it (Linux 5.8).
    Number(u64),
    /// By its file system, where there is no number: two mounts of one file system look the same.
    FileSystem(u64),
}

impl Mount {
    /// The mount that `handle` is on.
    pub(super) fn of(handle: BorrowedFd<'_>) -> io::Result<Mount> {
        // Linux before 4.11, and old filters of system calls, have no statx at all.
        match statx(handle, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID) {
            Ok(status) if status.stx_mask & StatxFlags::MNT_ID.bits() != 0 => Ok(Mount::Number(status.stx_mnt_id)),
            _ => Ok(Mount::FileSystem(fstat(handle)?.st_dev)),
        }
    }
}
