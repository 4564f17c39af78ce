//! Files of /proc: the host's, which are read, and the container's, which are covered.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use super::mount::MountId;
use super::{Directory, Found, HostDirectory, Kind, file_system};

/// A file of the host's own /proc.
#[derive(Debug)]
pub struct HostFile(Found);

impl HostFile {
    /// Finds the file of these names below the host's /proc.
    ///
    /// # Errors
    /// `NotFound` or `NotADirectory` if there is none; if it is not a regular file of a proc file system.
    pub fn in_proc(names: &[&str]) -> io::Result<HostFile> {
        let proc = HostDirectory::open(Path::new("/proc"))?;
        let found = walk(&proc, names)?;
        if !file_system::is_proc(&found)? {
            return Err(io::Error::other("the host's file is not on a proc file system"));
        }
        Ok(HostFile(found))
    }

    /// Its content.
    ///
    /// # Errors
    /// `InvalidInput` for anything but a regular file, `FileTooLarge` beyond `limit` bytes.
    pub fn read(&self, limit: u64) -> io::Result<Vec<u8>> {
        self.0.read(limit)
    }
}

/// A file of a container's own /proc, to be covered and not to be read.
#[derive(Debug)]
pub struct ContainerProcFile(Found);

impl ContainerProcFile {
    /// Finds the file of these names below `proc` in the root directory `root`. No link is followed.
    ///
    /// # Errors
    /// `NotFound` or `NotADirectory` if there is none; if `proc` is not a mounted proc file system, or if the file is
    /// not a regular file of that mount.
    pub(super) fn find(root: Directory, names: &[&str]) -> io::Result<ContainerProcFile> {
        let own = MountId::of(&root)?;
        let proc = walk(&root, &["proc"])?;
        let mount = MountId::of(&proc)?;
        if mount == own || !file_system::is_proc(&proc)? {
            return Err(io::Error::other(
                "the container's /proc is not a mounted proc file system",
            ));
        }
        let found = walk(&Directory::from_fd(proc.into()), names)?;
        if found.kind() != Kind::File || MountId::of(&found)? != mount {
            return Err(io::Error::other("it is not a file of the container's /proc"));
        }
        Ok(ContainerProcFile(found))
    }
}

impl AsFd for ContainerProcFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Goes from `directory` by one name at a time. A link is itself, so a name behind it is not found.
fn walk(directory: &Directory, names: &[&str]) -> io::Result<Found> {
    let mut names = names.iter();
    let first = names.next().ok_or(io::ErrorKind::InvalidInput)?;
    let mut found = directory.find(first.as_ref())?;
    for name in names {
        found = Directory::from_fd(found.into()).find(name.as_ref())?;
    }
    Ok(found)
}
