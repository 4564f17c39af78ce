//! Times since boot that mean the same in every time namespace.
//!
//! The kernel adds to the boot time, in clocks and in `/proc/PID/stat`, the offset of the time namespace of the process
//! that reads it (time_namespaces(7)). What is recorded is without that offset.

use super::proc_files::ProcFiles;
use crate::error::{Context, Error, Result};
use nix::sys::time::TimeSpec;
use std::io::ErrorKind;

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
    pub(super) fn read(proc: &ProcFiles) -> Result<Self> {
        let none = Self { nanoseconds: 0 };
        let name = "self/ns/time";
        let own = match proc.namespace(name) {
            // A kernel without time namespaces (before 5.6, or built without them).
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(none),
            own => own.about(proc.path(name).display(), "cannot be read")?,
        };
        let name = "self/ns/time_for_children";
        let children = proc
            .namespace(name)
            .about(proc.path(name).display(), "cannot be read")?;
        if own != children {
            let error = Error::failed("time namespace", "this process made one and did not enter it");
            return Err(error.hint("run this as a child of the process that made it: unshare --time --fork"));
        }
        if own == INITIAL {
            return Ok(none);
        }
        let name = "self/timens_offsets";
        let text = proc.read(name).about(proc.path(name).display(), "cannot be read")?;
        let offset = parse(&String::from_utf8_lossy(&text));
        offset.ok_or_else(|| Error::failed(proc.path(name).display(), "is not what the kernel writes"))
    }

    /// A time in ticks, without the offset.
    pub(super) fn without(self, ticks: u64) -> u64 {
        let shifted = i128::from(ticks) - (self.nanoseconds * TICKS).div_euclid(NANOSECONDS);
        u64::try_from(shifted.max(0)).unwrap_or(u64::MAX)
    }

    /// A time of a clock, without the offset, in whole seconds. All time namespaces have the same second at one time.
    pub(super) fn seconds_without(self, time: TimeSpec) -> u64 {
        let shown = i128::from(time.tv_sec()) * NANOSECONDS + i128::from(time.tv_nsec());
        u64::try_from((shown - self.nanoseconds).div_euclid(NANOSECONDS)).unwrap_or(0)
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
    use std::fs;
    use std::os::unix::fs::symlink;

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
        // Half a second after second 777, seen from everywhere.
        for (seconds, nanoseconds) in [(0, 0), (-5, 0), (100_000, 0), (3, 900_000_000), (-3, 400_000_000)] {
            let shown = 777_500_000_000 + seconds * 1_000_000_000 + nanoseconds;
            let shown = TimeSpec::new(shown / 1_000_000_000, shown % 1_000_000_000);
            assert_eq!(offset(seconds, nanoseconds).seconds_without(shown), 777);
        }
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
        let top = tempfile::tempdir().unwrap();
        let proc = ProcFiles::at(top.path()).unwrap();
        let namespaces = top.path().join("self/ns");
        let is_in = |name: &str, namespace: u64| {
            let link = namespaces.join(name);
            drop(fs::remove_file(&link));
            symlink(format!("time:[{namespace}]"), link).unwrap();
        };
        let second = TimeSpec::new(777, 0);
        fs::create_dir_all(&namespaces).unwrap();
        assert_eq!(
            Offset::read(&proc).unwrap().seconds_without(second),
            777,
            "no time namespaces"
        );
        is_in("time", 7);
        fs::write(top.path().join("self/timens_offsets"), "boottime 100 0\n").unwrap();
        assert!(Offset::read(&proc).is_err());
        is_in("time_for_children", 8);
        let error = Offset::read(&proc).unwrap_err().to_string();
        assert!(error.contains("made one and did not enter it"), "{error}");
        is_in("time_for_children", 7);
        assert_eq!(Offset::read(&proc).unwrap().seconds_without(second), 677);
        fs::remove_file(namespaces.join("time")).unwrap();
        fs::write(namespaces.join("time"), "").unwrap();
        assert!(
            Offset::read(&proc).is_err(),
            "what cannot be read is not an offset of zero"
        );
    }
}
