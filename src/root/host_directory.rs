//! A directory of the host that is not an image's: a bundle, or a directory of tranche's own.

use std::ffi::OsStr;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::{Directory, OwnDirectory};

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

    /// The content of the regular file `name`.
    ///
    /// # Errors
    /// `FileTooLarge` beyond `limit` bytes, `InvalidInput` for a link and for anything else that is not a regular file.
    pub fn read(&self, name: &OsStr, limit: u64) -> io::Result<Vec<u8>> {
        // Opened through /proc, like every file: where /proc is not the kernel's, a hook thus ends before it touches anything,
        // and pathrs is not called, which would panic there.
        self.0.find(name)?.read(limit)
    }

    pub(super) fn new(directory: Directory) -> Self {
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
