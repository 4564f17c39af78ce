//! One directory of a container, held open: everything in it is reached by a single name.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

use super::temporary::Temporary;
use super::{Found, Kind, Listing};

/// What [`Directory::link`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linked {
    /// The link is new.
    Made,
    /// The link took the place of what was there.
    Replaced,
    /// It was there already, with the same target.
    Already,
}

/// An open directory inside a container's root. A name given to it has no `/` in it and is never followed if it is a
/// link, so nothing that the image does to its paths can lead us elsewhere from here.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
}

impl Directory {
    /// The directory that `path` leads to on the host. For paths that we are given by an engine, never for an image's.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Self::from_fd(open(path, flags, Mode::empty())?))
    }

    pub(super) fn from_fd(fd: OwnedFd) -> Self {
        Directory { fd }
    }

    /// The file system (`st_dev`) that the directory is on.
    pub fn device(&self) -> io::Result<u64> {
        Ok(fstat(&self.fd)?.st_dev)
    }

    /// What `name` is, or `None` if there is no such name. A link is itself, not what it points to.
    pub fn status(&self, name: &OsStr) -> io::Result<Option<FileStat>> {
        match fstatat(&self.fd, single(name)?, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(found) => Ok(Some(found)),
            Err(Errno::ENOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// The directory `name`, made with mode 0755 less the umask if there is none.
    ///
    /// # Errors
    /// `NotADirectory` if something else has that name, also if it is a link to a directory.
    pub fn make_directory(&self, name: &OsStr) -> io::Result<Directory> {
        let name = single(name)?;
        match mkdirat(&self.fd, name, Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(Self::from_fd(openat(&self.fd, name, flags, Mode::empty())?))
    }

    /// The directory `name`.
    ///
    /// # Errors
    /// `NotFound` if there is none, `NotADirectory` if something else has that name, also if it is a link to a directory.
    pub fn subdirectory(&self, name: &OsStr) -> io::Result<Directory> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(Self::from_fd(openat(&self.fd, single(name)?, flags, Mode::empty())?))
    }

    /// Makes `name` a symbolic link with the text `target`, in place of whatever file or link has that name. The text
    /// is written as it is: it means something to the container, nothing to us.
    ///
    /// # Errors
    /// `IsADirectory` if `name` is a directory, `ResourceBusy` if something is mounted on it; it is then as before.
    pub fn link(&self, name: &OsStr, target: &OsStr) -> io::Result<Linked> {
        let name = single(name)?;
        match symlinkat(target, &self.fd, name) {
            Err(Errno::EEXIST) => {}
            made => return Ok(made.map(|()| Linked::Made)?),
        }
        if readlinkat(&self.fd, name).is_ok_and(|now| now == target) {
            return Ok(Linked::Already);
        }
        let (link, ()) = Temporary::make(self.fd.as_fd(), |temporary| symlinkat(target, &self.fd, temporary))?;
        link.rename_to(name)?;
        Ok(Linked::Replaced)
    }

    /// Makes `name` a regular file of exactly these bytes and this mode (the umask does not apply), in place of
    /// whatever file or link has that name. A reader sees the old file or the new one, never a part.
    pub fn replace(&self, name: &OsStr, bytes: &[u8], mode: u32) -> io::Result<()> {
        let name = single(name)?;
        // Renaming would fail too; this way the directory is not even touched.
        if fstatat(&self.fd, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(|now| is_directory(&now)) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let (new, fd) = Temporary::make(self.fd.as_fd(), |temporary| {
            openat(&self.fd, temporary, flags, Mode::from_bits_truncate(0o600))
        })?;
        let mut file = File::from(fd);
        file.write_all(bytes)?;
        fchmod(&file, Mode::from_bits_truncate(mode))?;
        new.rename_to(name)
    }

    /// The content of the regular file `name`.
    ///
    /// # Errors
    /// As [`super::ContainerRoot::read`], and a link is refused (`InvalidInput`) rather than followed.
    pub fn read(&self, name: &OsStr, limit: u64) -> io::Result<Vec<u8>> {
        self.find(name)?.read(limit)
    }

    /// What `name` is, held but not opened. A link is itself.
    pub fn find(&self, name: &OsStr) -> io::Result<Found> {
        let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Found::from_fd(openat(&self.fd, single(name)?, flags, Mode::empty())?)
    }

    /// The text of the link `name`.
    ///
    /// # Errors
    /// `InvalidInput` if it is no link.
    pub fn read_link(&self, name: &OsStr) -> io::Result<OsString> {
        Ok(readlinkat(&self.fd, single(name)?)?)
    }

    /// Removes the file or link `name`; there being none is as good.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        match unlinkat(&self.fd, single(name)?, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// The file system and the number of the directory: equal for two that are the same.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let status = fstat(&self.fd)?;
        Ok((status.st_dev, status.st_ino))
    }

    /// The names in the directory, sorted, without `.` and `..`.
    ///
    /// # Errors
    /// `FileTooLarge` if there are more than `limit`.
    pub fn names(&self, limit: usize) -> io::Result<Vec<OsString>> {
        let listing = self.entries(limit)?;
        let mut names: Vec<_> = listing.iter().map(|named| named.name.to_owned()).collect();
        names.sort();
        Ok(names)
    }

    /// As [`Self::names`], in no order, with what the directory says that each is.
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
            listing.push(name, entry.file_type().map(Kind::from));
        }
        Ok(listing)
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn is_directory(status: &FileStat) -> bool {
    SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR
}

/// Refuses what is more, or less, than one name.
fn single(name: &OsStr) -> io::Result<&OsStr> {
    match name.as_bytes() {
        b"" | b"." | b".." => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a name")),
        bytes if bytes.contains(&b'/') => Err(io::Error::new(io::ErrorKind::InvalidInput, "a path, not a name")),
        _ => Ok(name),
    }
}
