//! Times since boot that mean the same in every time namespace.
//!
//! The kernel adds to the boot time, in clocks and in `/proc/PID/stat`, the offset of the time namespace of the process
//! that reads it (time_namespaces(7)). What is recorded is without that offset.

use crate::error::{Context, Error, Result};
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::Path;

/// The kernel's ticks in a second in all that it shows to programs (`USER_HZ`, times(2): fixed at 100 by the ABI of all
/// architectures on which NVIDIA's driver runs).
const TICKS: i128 = 100;

const NANOSECONDS: i128 = 1_000_000_000;

/// The inode of the first time namespace, which has no offset (`PROC_TIME_INIT_INO`, linux/proc_ns.h).
const INITIAL: u64 = 0xEFFF_FFFA;

/// What this process's time namespace adds to times since boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offset {
    nanoseconds: i128,
}

impl Offset {
    /// The offset that holds for this process.
    ///
    /// # Errors
    /// Returns an error if the offset cannot be known: `/proc` shows the offset of the namespace for children, which is
    /// another one in a process that made a time namespace and did not enter it.
    pub(super) fn read(proc: &Path) -> Result<Self> {
        let namespace = |name: &str| fs::metadata(proc.join("self/ns").join(name)).map(|meta| meta.st_ino());
        let none = Self { nanoseconds: 0 };
        let Ok(own) = namespace("time") else {
            // A kernel without time namespaces (before 5.6, or built without them).
            return Ok(none);
        };
        let file = proc.join("self/timens_offsets");
        let children = namespace("time_for_children").about(file.display(), "cannot be read")?;
        if own != children {
            let error = Error::failed("time namespace", "this process made one and did not enter it");
            return Err(error.hint("run this as a child of the process that made it: unshare --time --fork"));
        }
        if own == INITIAL {
            return Ok(none);
        }
        let text = fs::read_to_string(&file).about(file.display(), "cannot be read")?;
        parse(&text).ok_or_else(|| Error::failed(file.display(), "is not what the kernel writes"))
    }

    /// A time in ticks, without the offset.
    pub(super) fn without(self, ticks: u64) -> u64 {
        let shifted = i128::from(ticks) - (self.nanoseconds * TICKS).div_euclid(NANOSECONDS);
        u64::try_from(shifted.max(0)).unwrap_or(u64::MAX)
    }

    /// The offset in whole seconds, rounded down.
    pub(super) fn seconds(self) -> i64 {
        i64::try_from(self.nanoseconds.div_euclid(NANOSECONDS)).unwrap_or(0)
    }
}

/// Whether both are the start of one process. An offset that is no whole number of ticks moves the kernel's rounding by
/// one tick; that two processes get one number within 20 ms would need the kernel to have used up all others in
/// between.
pub(super) fn is_same(a: u64, b: u64) -> bool {
    a.abs_diff(b) <= 1
}

/// Lines like `boottime   100000         0`: a clock, seconds, nanoseconds (time_namespaces(7)).
fn parse(text: &str) -> Option<Offset> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        if words.next() != Some("boottime") {
            return None;
        }
        let seconds: i64 = words.next()?.parse().ok()?;
        let nanoseconds: i64 = words.next()?.parse().ok()?;
        Some(Offset {
            nanoseconds: i128::from(seconds) * NANOSECONDS + i128::from(nanoseconds),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offset(seconds: i64, nanoseconds: i64) -> Offset {
        parse(&format!(
            "monotonic           1         2\nboottime   {seconds} {nanoseconds}\n"
        ))
        .unwrap()
    }

    #[test]
    fn a_start_is_the_same_from_everywhere() {
        assert_eq!(offset(0, 0).without(777), 777);
        assert_eq!(offset(100_000, 0).without(10_000_777), 777);
        assert_eq!(offset(-5, 0).without(277), 777);
        assert_eq!((offset(-5, 0).seconds(), offset(100_000, 5).seconds()), (-5, 100_000));
        // Half a tick: the kernel shows (start + offset) rounded down.
        for start_ns in (7_770_000_000..7_780_000_000u64).step_by(999_999) {
            let shown = (start_ns + 5_000_000) / 10_000_000;
            assert!(is_same(offset(0, 5_000_000).without(shown), start_ns / 10_000_000));
        }
        assert!(!is_same(777, 779));
        assert_eq!(parse("monotonic 1 2\n"), None);
        assert_eq!(parse("boottime x 2\n"), None);
    }

    #[test]
    fn the_offset_is_that_of_a_namespace_that_this_process_is_in() {
        let proc = tempfile::tempdir().unwrap();
        let namespaces = proc.path().join("self/ns");
        fs::create_dir_all(&namespaces).unwrap();
        assert_eq!(Offset::read(proc.path()).unwrap().seconds(), 0, "no time namespaces");
        fs::write(namespaces.join("time"), "").unwrap();
        fs::write(proc.path().join("self/timens_offsets"), "boottime 100 0\n").unwrap();
        assert!(Offset::read(proc.path()).is_err());
        let children = namespaces.join("time_for_children");
        fs::write(&children, "").unwrap();
        let error = Offset::read(proc.path()).unwrap_err().to_string();
        assert!(error.contains("made one and did not enter it"), "{error}");
        fs::remove_file(&children).unwrap();
        fs::hard_link(namespaces.join("time"), &children).unwrap();
        assert_eq!(Offset::read(proc.path()).unwrap().seconds(), 100);
    }
}
