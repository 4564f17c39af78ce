//! Which mount a handle is on.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::sys::stat::fstat;
use rustix::fs::{AtFlags, StatxFlags, statx};

/// A mount, as far as two can be told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mount {
    /// By the kernel's number for it.
    Number(u64),
    /// By its file system, where there is no number: two mounts of one file system look the same.
    FileSystem(u64),
}

impl Mount {
    /// The mount that `handle` is on.
    pub(super) fn of(handle: BorrowedFd<'_>) -> io::Result<Mount> {
        // Since Linux 5.8. Before 4.11, and under old filters of system calls, there is no statx at all.
        match statx(handle, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID) {
            Ok(status) if status.stx_mask & StatxFlags::MNT_ID.bits() != 0 => Ok(Mount::Number(status.stx_mnt_id)),
            _ => match number_in_proc(handle) {
                Some(number) => Ok(Mount::Number(number)),
                None => Ok(Mount::FileSystem(fstat(handle)?.st_dev)),
            },
        }
    }
}

/// The same number as the kernel shows it in /proc since Linux 3.15 (proc(5)): enterprise distributions have kernels between
/// the two.
fn number_in_proc(handle: BorrowedFd<'_>) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", handle.as_raw_fd())).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn both_ways_give_one_number() {
        for path in ["/", "/proc", "/dev"] {
            let file = File::open(path).unwrap();
            let number = number_in_proc(file.as_fd()).unwrap();
            if let Mount::Number(other) = Mount::of(file.as_fd()).unwrap() {
                assert_eq!(number, other, "{path}");
            }
        }
    }
}
