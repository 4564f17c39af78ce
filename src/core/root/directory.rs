//! One directory of a container, held open: everything in it is reached by a single name.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};

use super::{FileType, Found, Listing};

/// An open directory of a container, for reading. Its methods take single names without `/` and do not follow links, so
/// no change of the image's paths can lead elsewhere.
///
/// It may not be the image's own: see [`super::OwnDirectory`].
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
}

impl Directory {
    pub(super) fn from_fd(fd: OwnedFd) -> Self {
        Directory { fd }
    }

    /// The status of `name`; `None` if there is no such name. Links are not followed.
    pub fn status(&self, name: &OsStr) -> io::Result<Option<FileStat>> {
        match fstatat(&self.fd, single(name)?, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::ENOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Holds `name` without opening it. Links are not followed.
    pub fn find(&self, name: &OsStr) -> io::Result<Found> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Found::from_fd(openat(&self.fd, single(name)?, flags, Mode::empty())?)
    }

    /// The text of the link `name`.
    ///
    /// # Errors
    /// Returns `InvalidInput` if it is not a link.
    pub fn read_link(&self, name: &OsStr) -> io::Result<OsString> {
        Ok(readlinkat(&self.fd, single(name)?)?)
    }

    /// The file system and the inode of the directory, which identify it.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let status = fstat(&self.fd)?;
        Ok((status.st_dev, status.st_ino))
    }

    /// The names in the directory, sorted, without `.` and `..`.
    ///
    /// # Errors
    /// Returns `FileTooLarge` if there are more than `limit`.
    pub fn names(&self, limit: usize) -> io::Result<Vec<OsString>> {
        let listing = self.entries(limit)?;
        let mut names: Vec<_> = listing.iter().map(|named| named.name.to_owned()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// The names in the directory, in no order, each with its kind. Errors are those of [`Self::names`].
    pub fn entries(&self, limit: usize) -> io::Result<Listing> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let mut open = Dir::from_fd(openat(&self.fd, ".", flags, Mode::empty())?)?;
        let mut listing = Listing::default();
        for entry in open.iter() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            if listing.len() == limit {
                return Err(io::Error::new(
                    io::ErrorKind::FileTooLarge,
                    format!("more than {limit} names"),
                ));
            }
            listing.push(name, entry.file_type().map(FileType::from));
        }
        Ok(listing)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<Directory> for OwnedFd {
    fn from(directory: Directory) -> OwnedFd {
        directory.fd
    }
}

/// Refuses anything but a single name.
pub(super) fn single(name: &OsStr) -> io::Result<&OsStr> {
    match name.as_bytes() {
        b"" | b"." | b".." => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a name")),
        bytes if bytes.contains(&b'/') => Err(io::Error::new(io::ErrorKind::InvalidInput, "a path, not a name")),
        _ => Ok(name),
    }
}
