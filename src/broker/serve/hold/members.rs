//! The processes of a recorded cgroup, found through a handle of it, however many cgroups are below it and however
//! deep.

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, fstat, fstatfs, openat};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use tranche_core::ledger::Cgroup;

/// `CGROUP2_SUPER_MAGIC` (statfs(2)).
const VERSION_2: i128 = 0x6367_7270;

/// `CGROUP_SUPER_MAGIC`.
const VERSION_1: i128 = 0x0027_e0eb;

/// The most cgroups below the recorded one that are looked at: some seconds.
const MOST_CGROUPS: usize = 250_000;

/// More than a file of a cgroup has: the kernel has at most 4,194,304 processes (proc(5), `pid_max`).
const MOST_BYTES: u64 = 64 << 20;

/// A cgroup that exists.
#[derive(Debug)]
pub(super) struct FoundCgroup {
    directory: OwnedFd,
    is_version_2: bool,
}

impl FoundCgroup {
    /// The cgroup of `record`; `None` if it was removed.
    ///
    /// # Errors
    /// Returns an error if it cannot be opened.
    pub(super) fn open(record: &Cgroup) -> io::Result<Option<Self>> {
        let directory = match open(CWD, record.path.as_str()) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            directory => directory?,
        };
        let magic = i128::from(fstatfs(&directory)?.f_type);
        // A later cgroup of the same name has another inode.
        let is_recorded = [VERSION_1, VERSION_2].contains(&magic) && fstat(&directory)?.st_ino == record.inode;
        Ok(is_recorded.then_some(Self {
            directory,
            is_version_2: magic == VERSION_2,
        }))
    }

    /// Whether it is one of version 2, which can be frozen.
    pub(super) fn is_version_2(&self) -> bool {
        self.is_version_2
    }

    /// The text of a file of it.
    pub(super) fn read(&self, name: &str) -> io::Result<String> {
        read(self.directory.as_fd(), name)
    }

    /// Writes a file of it.
    pub(super) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.directory, name, flags, Mode::empty())?;
        File::from(file).write_all(text.as_bytes())
    }

    /// Calls `visit` with it and with each cgroup below it that has processes.
    ///
    /// # Errors
    /// Returns the error of `visit`, and one if there are too many cgroups or if one cannot be looked at.
    pub(super) fn each(&self, visit: &mut dyn FnMut(BorrowedFd<'_>) -> io::Result<()>) -> io::Result<()> {
        let mut here = self.directory.try_clone()?;
        visit(here.as_fd())?;
        // The names that are left in each level. One handle goes down and up, so that no depth is too deep.
        let mut levels = vec![below(here.as_fd())?];
        let mut looked_at = 0;
        while let Some(level) = levels.last_mut() {
            let Some(name) = level.pop() else {
                levels.pop();
                if !levels.is_empty() {
                    here = open(here.as_fd(), "..")?;
                }
                continue;
            };
            looked_at += 1;
            if looked_at > MOST_CGROUPS {
                return Err(io::Error::other(format!(
                    "has more than {MOST_CGROUPS} cgroups below it"
                )));
            }
            let directory = match open(here.as_fd(), &name) {
                // It was removed since.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                directory => directory?,
            };
            if has_processes(directory.as_fd())? {
                visit(directory.as_fd())?;
                levels.push(below(directory.as_fd())?);
                here = directory;
            }
        }
        Ok(())
    }
}

/// The numbers of the processes in a cgroup, without those below it; 0 for one of a pid namespace that cannot be seen.
pub(super) fn processes(cgroup: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let number = |line: &str| line.parse().unwrap_or(0);
    match read(cgroup, "cgroup.procs") {
        Ok(text) => Ok(text.lines().map(number).collect()),
        Err(error) if is_removed(&error) => Ok(Vec::new()),
        // A threaded cgroup of version 2 lists its processes in a cgroup above it, which may be above the recorded one.
        Err(error) if error.raw_os_error() == Some(nix::libc::EOPNOTSUPP) => {
            let threads = match read(cgroup, "cgroup.threads") {
                Err(error) if is_removed(&error) => String::new(),
                text => text?,
            };
            let mut processes: Vec<u32> = threads.lines().filter_map(|line| process_of(number(line))).collect();
            processes.dedup();
            Ok(processes)
        }
        Err(error) => Err(error),
    }
}

/// The process of a thread; `None` if it has ended.
fn process_of(thread: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

/// Whether a cgroup, or one below it, may have processes. Version 1 does not say it.
fn has_processes(cgroup: BorrowedFd<'_>) -> io::Result<bool> {
    match read(cgroup, "cgroup.events") {
        Ok(events) => Ok(is_set(&events, "populated")),
        Err(error) if error.raw_os_error() == Some(nix::libc::ENODEV) => Ok(false),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether the text of `cgroup.events` says that `key` is so.
pub(super) fn is_set(events: &str, key: &str) -> bool {
    events.lines().any(|line| line.split_once(' ') == Some((key, "1")))
}

/// Whether a file of a cgroup could not be read because the cgroup was removed.
pub(super) fn is_removed(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(nix::libc::ENODEV)
}

/// The names of the cgroups below one.
fn below(cgroup: BorrowedFd<'_>) -> io::Result<Vec<std::ffi::CString>> {
    // Each is one link more (kernfs counts them), so that most need no listing.
    if fstat(cgroup)?.st_nlink <= 2 {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in Dir::read_from(cgroup)? {
        let entry = entry?;
        let is_dots = [b".".as_slice(), b".."].contains(&entry.file_name().to_bytes());
        if entry.file_type() == FileType::Directory && !is_dots {
            names.push(entry.file_name().to_owned());
            if names.len() > MOST_CGROUPS {
                break;
            }
        }
    }
    Ok(names)
}

fn open(at: BorrowedFd<'_>, path: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(at, path, flags, Mode::empty())?)
}

fn read(cgroup: BorrowedFd<'_>, name: &str) -> io::Result<String> {
    let file = openat(
        cgroup,
        name,
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut text = String::new();
    File::from(file).take(MOST_BYTES).read_to_string(&mut text)?;
    Ok(text)
}
