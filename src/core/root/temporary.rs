//! A new entry under a temporary name, until it replaces another entry.
//!
//! A process that is killed leaves the temporary name behind. So the name is the same each time, and the next process
//! that needs it removes an old one. A function that takes paths (`replace`) would follow what an image put there.

use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, renameat};
use nix::sys::stat::{SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};

/// The name, if no other process uses it at this moment.
const NAME: &str = ".tranche-new";

/// Seconds after which an entry of that name counts as left behind. It normally exists for two system calls, and a hook
/// has one second of processor time.
const LEFT: i64 = 60;

/// How many names are tried. If all are taken, another process makes them on purpose.
const TRIES: usize = 16;

/// Whether `name` is one that [`Temporary::make`] tries.
pub(super) fn is_name(name: &OsStr) -> bool {
    let Some(name) = name.to_str().and_then(|name| name.strip_prefix(NAME)) else {
        return false;
    };
    let is_number = |number: &str| number.len() == 16 && number.bytes().all(|b| b.is_ascii_hexdigit());
    name.is_empty() || name.strip_prefix('-').is_some_and(is_number)
}

/// An entry that is removed when this is dropped, unless it was renamed.
pub(super) struct Temporary<'d> {
    directory: BorrowedFd<'d>,
    name: OsString,
    placed: bool,
}

impl<'d> Temporary<'d> {
    /// Calls `make` with names until one is free. `make` must fail with `EEXIST` on a name that is taken, and must not
    /// follow it if it is a link: `symlinkat` and `openat` with `O_EXCL` do.
    pub(super) fn make<T>(
        directory: BorrowedFd<'d>,
        make: impl FnMut(&OsStr) -> nix::Result<T>,
    ) -> io::Result<(Self, T)> {
        Self::make_at(now(), directory, make)
    }

    /// [`Self::make`] at the time `now`, in seconds since 1970.
    fn make_at<T>(
        now: i64,
        directory: BorrowedFd<'d>,
        mut make: impl FnMut(&OsStr) -> nix::Result<T>,
    ) -> io::Result<(Self, T)> {
        for tries in 0..TRIES {
            // The name need not be secret, because an existing entry is never used.
            let name = match tries {
                0 | 1 => OsString::from(NAME),
                _ => OsString::from(format!("{NAME}-{:016x}", RandomState::new().build_hasher().finish())),
            };
            match make(&name) {
                Ok(made) => {
                    return Ok((
                        Temporary {
                            directory,
                            name,
                            placed: false,
                        },
                        made,
                    ));
                }
                Err(Errno::EEXIST) if tries == 0 => remove_left(directory, &name, now),
                Err(Errno::EEXIST) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Err(Errno::EEXIST.into())
    }

    /// Renames the entry to `name`, and replaces a file or link of that name.
    pub(super) fn rename_to(mut self, name: &OsStr) -> io::Result<()> {
        renameat(self.directory, self.name.as_os_str(), self.directory, name)?;
        self.placed = true;
        Ok(())
    }
}

/// Seconds since 1970.
fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

/// Removes the file or link `name` if it was left behind before `now`. If that fails, another name is used.
fn remove_left(directory: BorrowedFd<'_>, name: &OsStr, now: i64) {
    let Ok(status) = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW) else {
        return;
    };
    let kind = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT;
    let age = now.saturating_sub(status.st_ctime);
    if matches!(kind, SFlag::S_IFREG | SFlag::S_IFLNK) && age > LEFT {
        let _ = unlinkat(directory, name, UnlinkatFlags::NoRemoveDir);
    }
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        if !self.placed {
            // A failure here is not reported. The error that led here is.
            let _ = unlinkat(self.directory, self.name.as_os_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use nix::unistd::symlinkat;

    use super::*;

    fn names(directory: &Path) -> Vec<OsString> {
        let mut names: Vec<OsString> = fs::read_dir(directory)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        names
    }

    fn make(directory: &Path, target: &str) -> OsString {
        let open = File::open(directory).unwrap();
        let (made, ()) = Temporary::make(open.as_fd(), |name| symlinkat(target, &open, name)).unwrap();
        let name = made.name.clone();
        made.rename_to(OsStr::new("placed")).unwrap();
        assert_eq!(fs::read_link(directory.join("placed")).unwrap(), Path::new(target));
        name
    }

    #[test]
    fn what_a_killed_process_left_is_removed() {
        let top = tempfile::tempdir().unwrap();
        let left = top.path().join(NAME);
        symlink("left", &left).unwrap();
        // Somebody may be at work with it.
        assert_ne!(make(top.path(), "a"), NAME);
        assert_eq!(fs::read_link(&left).unwrap(), Path::new("left"));
        assert_eq!(names(top.path()), [NAME, "placed"]);
        // The time at which an entry was changed cannot be set. So the clock is what is asked.
        let status = nix::sys::stat::lstat(&left).unwrap();
        let directory = File::open(top.path()).unwrap();
        remove_left(directory.as_fd(), OsStr::new(NAME), status.st_ctime + LEFT);
        assert_eq!(names(top.path()), [NAME, "placed"]);
        remove_left(directory.as_fd(), OsStr::new(NAME), status.st_ctime + LEFT + 1);
        assert_eq!(names(top.path()), ["placed"]);
        assert_eq!(make(top.path(), "b"), NAME);
        assert_eq!(names(top.path()), ["placed"]);
    }

    #[test]
    fn a_directory_of_the_image_with_that_name_is_not_touched() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join(NAME)).unwrap();
        remove_left(File::open(top.path()).unwrap().as_fd(), OsStr::new(NAME), i64::MAX);
        assert_ne!(make(top.path(), "a"), NAME);
        assert_eq!(names(top.path()), [NAME, "placed"]);
    }

    #[test]
    fn an_entry_takes_the_place_of_one_that_was_left_long_ago() {
        let top = tempfile::tempdir().unwrap();
        let left = top.path().join(NAME);
        symlink("left", &left).unwrap();
        let open = File::open(top.path()).unwrap();
        let later = nix::sys::stat::lstat(&left).unwrap().st_ctime + LEFT + 1;
        let (made, ()) = Temporary::make_at(later, open.as_fd(), |name| symlinkat("new", &open, name)).unwrap();
        assert_eq!(names(top.path()), [NAME]);
        assert_eq!(fs::read_link(&left).unwrap(), Path::new("new"));
        drop(made);
        assert!(names(top.path()).is_empty(), "it was not renamed");
    }

    #[test]
    fn the_clock_is_that_of_the_file_system() {
        let made = tempfile::tempfile().unwrap();
        let created = nix::sys::stat::fstat(&made).unwrap().st_ctime;
        assert!((created..created + LEFT).contains(&now()), "{created}");
    }
}
