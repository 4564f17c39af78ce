//! The mount that a handle is on.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, StatxFlags, statx};

/// The kernel's number of a mount. It is not used again while a handle on that mount is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MountId(pub(super) u64);

impl MountId {
    /// The mount that `handle` is on.
    ///
    /// # Errors
    /// Returns an error if the kernel does not say. Whoever asks must then refuse the handle: nothing else tells a
    /// bind mount from the mount that it was made of.
    pub(super) fn of(handle: impl AsFd) -> io::Result<MountId> {
        let handle = handle.as_fd();
        // Linux 5.8. Linux before 4.11 and old filters of system calls have no statx at all.
        match statx(handle, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID) {
            Ok(status) if status.stx_mask & StatxFlags::MNT_ID.bits() != 0 => Ok(MountId(status.stx_mnt_id)),
            _ => number_in_proc(handle).map(MountId),
        }
    }

    /// Whether a mount that is made below this one appears in other mount namespaces too, for example on the host.
    ///
    /// # Errors
    /// Returns an error if the list of mounts cannot be read or does not have this mount.
    pub(super) fn is_shared(self) -> io::Result<bool> {
        for line in BufReader::new(File::open("/proc/thread-self/mountinfo")?).split(b'\n') {
            if let Some(shared) = shared_in(&line?, self) {
                return Ok(shared);
            }
        }
        Err(io::Error::other("its mount is not in the list of mounts"))
    }
}

/// Whether a line of mountinfo says that the mount `id` is shared. `None` if the line is about another mount.
///
/// Format (proc(5)): `id parent major:minor root mount-point options [optional-field]... - type source options`.
fn shared_in(line: &[u8], id: MountId) -> Option<bool> {
    let mut fields = line.split(|byte| *byte == b' ');
    let first = std::str::from_utf8(fields.next()?).ok()?;
    if first.parse() != Ok(id.0) {
        return None;
    }
    let mut optional = fields.skip(5).take_while(|field| *field != b"-");
    Some(optional.any(|field| field.starts_with(b"shared:")))
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

    #[test]
    fn both_ways_give_one_number() {
        for path in ["/", "/proc", "/dev"] {
            let file = File::open(path).unwrap();
            let number = number_in_proc(file.as_fd()).unwrap();
            assert_eq!(MountId(number), MountId::of(&file).unwrap(), "{path}");
        }
    }

    #[test]
    fn only_the_optional_fields_of_its_own_line_say_that_a_mount_is_shared() {
        let id = MountId(85);
        let line = |text: &str| shared_in(text.as_bytes(), id);
        assert_eq!(line("85 24 0:39 /f /m rw shared:3 - tmpfs none rw"), Some(true));
        assert_eq!(
            line("85 24 0:39 /f /m rw master:1 shared:3 - tmpfs none rw"),
            Some(true)
        );
        assert_eq!(line("85 24 0:39 /f /m rw master:1 - tmpfs none rw"), Some(false));
        assert_eq!(line("85 24 0:39 /f /m rw - tmpfs shared:3 rw,shared:3"), Some(false));
        assert_eq!(line("8 85 0:39 /f /m rw shared:3 - tmpfs none rw"), None);
        assert_eq!(line(""), None);
    }
}
