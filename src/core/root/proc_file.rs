//! Files of /proc: the host's, which are read, and the container's, which are covered.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use super::mount::MountId;
use super::{Directory, FileType, Found, HostDirectory, file_system};

/// The content of the file of these names below the host's own /proc.
///
/// # Errors
/// Returns `NotFound` or `NotADirectory` if there is no such file, `FileTooLarge` beyond `limit` bytes, and an error if
/// it is not a regular file of a proc file system.
pub fn read_host_proc(names: &[&str], limit: u64) -> io::Result<Vec<u8>> {
    let proc = HostDirectory::open(Path::new("/proc"))?;
    let found = walk(&proc, names)?;
    if !file_system::is_proc(&found)? {
        return Err(io::Error::other("the host's file is not on a proc file system"));
    }
    found.read(limit)
}

/// A file of a container's own /proc, which is covered and never read.
#[derive(Debug)]
pub struct ContainerProcFile(Found);

impl ContainerProcFile {
    /// Finds the file of these names below `proc` in the root directory `root`. No link is followed.
    ///
    /// # Errors
    /// Returns `NotFound` or `NotADirectory` if there is no such file, and an error if `proc` is not a mounted proc
    /// file system or the file is not a regular file of that mount.
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
        if found.kind() != FileType::File || MountId::of(&found)? != mount {
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

/// Follows `names` from `directory`, one at a time. Links are not followed, so a name behind a link is not found.
fn walk(directory: &Directory, names: &[&str]) -> io::Result<Found> {
    let mut names = names.iter();
    let first = names.next().ok_or(io::ErrorKind::InvalidInput)?;
    let mut found = directory.find(first.as_ref())?;
    for name in names {
        found = Directory::from_fd(found.into()).find(name.as_ref())?;
    }
    Ok(found)
}
