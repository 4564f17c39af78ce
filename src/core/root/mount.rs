//! The mount that a handle is on.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, StatxFlags, statx};

/// The kernel's number of a mount. It is not used again while a handle on that mount is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MountId(pub(super) u64);

impl MountId {
    /// The mount that `handle` is on.
    ///
    /// # Errors
    /// Returns an error if the kernel does not report it. The caller must then refuse the handle, because nothing else
    /// distinguishes a bind mount from its source.
    pub(super) fn of(handle: impl AsFd) -> io::Result<MountId> {
        let handle = handle.as_fd();
        // Linux 5.8. Linux before 4.11 and old filters of system calls have no statx at all.
        match statx(handle, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID) {
            Ok(status) if status.stx_mask & StatxFlags::MNT_ID.bits() != 0 => Ok(MountId(status.stx_mnt_id)),
            _ => number_in_proc(handle).map(MountId),
        }
    }
}

/// The same number as the kernel shows it in /proc since Linux 3.15 (proc(5)). Enterprise distributions have kernels
/// between 3.15 and 5.8.
fn number_in_proc(handle: BorrowedFd<'_>) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", handle.as_raw_fd()))?;
    let number = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    number
        .and_then(|number| number.trim().parse().ok())
        .ok_or_else(|| io::Error::other("the kernel does not say which mount it is on"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn both_ways_give_one_number() {
        for path in ["/", "/proc", "/dev"] {
            let file = File::open(path).unwrap();
            let number = number_in_proc(file.as_fd()).unwrap();
            assert_eq!(MountId(number), MountId::of(&file).unwrap(), "{path}");
        }
    }
}
