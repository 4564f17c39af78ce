//! The files of `/proc` that say which processes live and when they began.
//!
//! A mount over `/proc`, or over a part of it, must not make a process look as if it had ended. So every file is opened
//! by one call of the kernel that follows no mount (`openat2(2)` with `RESOLVE_NO_XDEV`, Linux 5.6), from one handle of
//! `/proc`. Without that call, a file of another file system is refused, and a mount of another file of `/proc` is not
//! noticed.

use crate::error::{Context, Error, Result};
use rustix::fs::{Mode, OFlags, PROC_SUPER_MAGIC, ResolveFlags, fstat, fstatfs, open, openat, openat2, readlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The most bytes that are read of one file. `status` has some 1,500 bytes, and a list of cgroups some hundred.
const MOST_BYTES: u64 = 64 << 10;

/// `/proc`, held open.
#[derive(Debug, Clone)]
pub(super) struct ProcFiles {
    directory: Arc<OwnedFd>,
    path: PathBuf,
}

impl ProcFiles {
    /// Opens `/proc`.
    ///
    /// # Errors
    /// Returns an error if it cannot be opened, if it is another file system, or if it shows the processes of another
    /// pid namespace than that of this process: then its numbers mean other processes than those of the kernel's
    /// calls.
    pub(super) fn open() -> Result<Self> {
        let proc = Self::at(Path::new("/proc"))?;
        let about = proc.path.display();
        let status = fstatfs(&*proc.directory).about(&about, "cannot be read")?;
        if status.f_type != PROC_SUPER_MAGIC {
            return Err(Error::failed(about, "is not the kernel's file system of processes"));
        }
        let status = proc
            .read("self/status")
            .about(proc.path("self/status").display(), "cannot be read")?;
        if !is_of_one_namespace(&status) {
            let error = Error::failed(
                about,
                "shows the processes of another pid namespace than that of this process",
            );
            return Err(error.hint("mount it anew: unshare --pid --fork --mount-proc"));
        }
        Ok(proc)
    }

    /// The directory `path`, which need not be a `/proc`.
    ///
    /// # Errors
    /// Returns an error if it cannot be opened.
    pub(super) fn at(path: &Path) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(path, flags, Mode::empty()).about(path.display(), "cannot be opened")?;
        Ok(Self {
            directory: Arc::new(directory),
            path: path.to_owned(),
        })
    }

    /// The path of `name`, for a message.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The content of the file `name`.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, or if something is mounted over it.
    pub(super) fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let file = self.find(name, OFlags::RDONLY)?;
        // The kernel does not say how long a file of /proc is: room for a whole line, which is then read at once.
        let mut bytes = Vec::with_capacity(1024);
        File::from(file).take(MOST_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// The inode of a namespace: `name` is a link like `self/ns/pid`, to `pid:[4026531836]` (namespaces(7)).
    ///
    /// # Errors
    /// Returns an error if there is no such link, or if something is mounted over it.
    pub(super) fn namespace(&self, name: &str) -> io::Result<u64> {
        let link = self.find(name, OFlags::PATH | OFlags::NOFOLLOW)?;
        // Of a file that is not a link, the kernel says that it does not exist.
        let target = readlinkat(link, "", Vec::new()).ok();
        let inode = target.and_then(|target| {
            target
                .to_str()
                .ok()?
                .strip_suffix(']')?
                .split_once(":[")?
                .1
                .parse()
                .ok()
        });
        inode.ok_or_else(|| io::Error::other("is not a link to a namespace"))
    }

    /// The numbers of all processes that it shows.
    ///
    /// # Errors
    /// Returns an error if it cannot be listed.
    pub(super) fn processes(&self) -> io::Result<Vec<u32>> {
        let directory = self.find(".", OFlags::RDONLY | OFlags::DIRECTORY)?;
        let entries = rustix::fs::Dir::new(directory)?;
        let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str().ok()?.parse().ok());
        Ok(numbers.collect())
    }

    fn find(&self, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC;
        match openat2(&*self.directory, name, flags, Mode::empty(), ResolveFlags::NO_XDEV) {
            // The kernel or a filter of system calls does not support this call.
            Err(Errno::NOSYS | Errno::PERM) => {
                let file = openat(&*self.directory, name, flags, Mode::empty())?;
                match fstat(&file)?.st_dev == fstat(&*self.directory)?.st_dev {
                    true => Ok(file),
                    false => Err(Errno::XDEV.into()),
                }
            }
            found => Ok(found?),
        }
    }
}

/// Whether the process with this `status` has one number only: `NSpid` lists its numbers from the namespace that
/// `/proc` shows to the one that the process is in (proc(5)). A kernel without pid namespaces has no such line.
fn is_of_one_namespace(status: &[u8]) -> bool {
    let text = String::from_utf8_lossy(status);
    let numbers = text.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_none_or(|numbers| numbers.split_ascii_whitespace().count() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_an_inner_namespace_is_seen_by_its_numbers() {
        assert!(is_of_one_namespace(b"Name:\tsh\nNSpid:\t7\n"));
        assert!(is_of_one_namespace(b"Name:\tsh\n"));
        assert!(!is_of_one_namespace(b"Name:\tNSpid:\nNSpid:\t700\t7\n"));
    }

    #[test]
    fn files_and_namespaces_of_this_process_are_read() {
        let proc = ProcFiles::open().unwrap();
        let own = std::fs::metadata("/proc/self/ns/pid").unwrap();
        assert_eq!(
            proc.namespace("self/ns/pid").unwrap(),
            std::os::linux::fs::MetadataExt::st_ino(&own)
        );
        assert!(proc.read("self/stat").unwrap().ends_with(b"\n"));
        assert!(proc.processes().unwrap().contains(&std::process::id()));
        assert_eq!(proc.read("self/none").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(proc.namespace("self/stat").unwrap_err().kind(), io::ErrorKind::Other);
    }
}
