//! A directory of the host that is not an image's: a bundle, or a directory of tranche's own.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, fstat};

use super::directory::single;
use super::found::read_file;
use super::{Directory, Kind, OwnDirectory};

/// An open directory of the host. Its path comes from an engine or an administrator, and not from an image, so what is in
/// it may be read and written as it is.
#[derive(Debug)]
pub struct HostDirectory(OwnDirectory);

impl HostDirectory {
    /// Opens the directory that `path` leads to on the host. The path is followed like any other.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Self::new(Directory::from_fd(open(path, flags, Mode::empty())?)))
    }

    /// The directory `name` in it.
    ///
    /// # Errors
    /// `NotFound` if there is none, `NotADirectory` if something else has that name, also if it is a link to a directory.
    pub fn subdirectory(&self, name: &OsStr) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let directory = openat(&self.0, single(name)?, flags, Mode::empty())?;
        Ok(Self::new(Directory::from_fd(directory)))
    }

    /// The content of the regular file `name`.
    ///
    /// # Errors
    /// `FileTooLarge` beyond `limit` bytes, `InvalidInput` for a link and for anything else that is not a regular file.
    pub fn read(&self, name: &OsStr, limit: u64) -> io::Result<Vec<u8>> {
        let not_regular = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
        // Opened at once, and looked at then: whoever may write this directory may do everything that opening may do. A
        // FIFO is not waited for.
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let file = match openat(&self.0, single(name)?, flags, Mode::empty()) {
            Err(Errno::ELOOP | Errno::ENXIO) => return Err(not_regular()),
            opened => File::from(opened?),
        };
        let status = fstat(&file)?;
        match Kind::of(&status) {
            Kind::File => read_file(&file, &status, limit),
            _ => Err(not_regular()),
        }
    }

    fn new(directory: Directory) -> Self {
        HostDirectory(OwnDirectory::new(directory))
    }
}

impl Deref for HostDirectory {
    type Target = OwnDirectory;

    fn deref(&self) -> &OwnDirectory {
        &self.0
    }
}

impl AsFd for HostDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
