//! A file of the image itself: the only kind of file whose content is carried over.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::stat::{FileStat, Mode, fchmod, fstat};
use nix::unistd::{Gid, Uid, fchown};
use rustix::fs::fgetxattr;

use super::{Found, Kind};

/// A regular file of the image, open for reading.
///
/// The hook runs as root, so it can read what the container must not. A link of the image can lead to such a file: in
/// a volume, in /proc, in /sys. Bytes that end up in a file or a mount for the container are therefore taken from this
/// type alone. [`super::ContainerRoot::own`] makes it, of a handle that is a regular file with exactly one name, on
/// the mount of the container's root, on a file system that holds images. Everything after that is done to this handle:
/// no path is followed a second time.
#[derive(Debug)]
pub struct OwnFile {
    found: Found,
    file: File,
    status: FileStat,
}

/// Why a file is not one of the image's own.
#[derive(Debug)]
pub enum NotOwn {
    /// There is no such file, or what is there is not a regular file.
    Absent,
    /// It is on another mount than the root: a volume, /proc, /sys, /dev.
    OtherMount,
    /// The kernel does not say which mount it is on.
    UnknownMount,
    /// Its file system is not one that holds images.
    FileSystem,
    /// The file has other names, which may be outside of the root.
    OtherNames,
    /// The kernel did not find or open it.
    Unknown(io::Error),
}

impl OwnFile {
    /// Opens `found`, whose mount and file system are known to be the image's.
    pub(super) fn open(found: Found) -> Result<OwnFile, NotOwn> {
        if found.kind() != Kind::File {
            return Err(NotOwn::Absent);
        }
        let file = found.open()?;
        // Of the open file: whatever was linked or changed before this moment is seen.
        let status = fstat(&file).map_err(io::Error::from)?;
        if status.st_nlink != 1 {
            return Err(NotOwn::OtherNames);
        }
        Ok(OwnFile { found, file, status })
    }

    /// Its content, from the beginning.
    ///
    /// # Errors
    /// `FileTooLarge` beyond `limit` bytes.
    pub fn read(&self, limit: u64) -> io::Result<Vec<u8>> {
        super::found::read_file(&self.file, &self.status, limit)
    }

    /// The file, to be read in parts.
    pub fn into_file(self) -> File {
        self.file
    }

    /// What a file in its place must have.
    pub fn permissions(&self) -> Permissions {
        // The group's bits are the mask of an access control list where there is one (acl(5)), and more than the
        // group itself may have.
        let listed = fgetxattr(&self.file, "system.posix_acl_access", &mut [] as &mut [u8]).is_ok();
        let mode = self.status.st_mode & if listed { 0o707 } else { 0o777 };
        Permissions {
            mode,
            owner: Some((Uid::from_raw(self.status.st_uid), Gid::from_raw(self.status.st_gid))),
        }
    }
}

impl AsFd for OwnFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.found.as_fd()
    }
}

impl From<io::Error> for NotOwn {
    fn from(error: io::Error) -> NotOwn {
        let nothing = matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput
        );
        if nothing || error.raw_os_error() == Some(nix::errno::Errno::ELOOP as i32) {
            NotOwn::Absent
        } else {
            NotOwn::Unknown(error)
        }
    }
}

impl fmt::Display for NotOwn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotOwn::Absent => f.write_str("it is not there"),
            NotOwn::OtherMount => f.write_str("it is not on the mount of the container's root"),
            NotOwn::UnknownMount => f.write_str("it is not known which mount it is on"),
            NotOwn::FileSystem => f.write_str("its file system is not one that holds images"),
            NotOwn::OtherNames => f.write_str("it has more than one name"),
            NotOwn::Unknown(error) => error.fmt(f),
        }
    }
}

impl From<NotOwn> for io::Error {
    /// `NotFound` for an absent file; the kernel's error; and `ReadOnlyFilesystem` for a file that is not the image's: it
    /// is there, and not to be changed.
    fn from(why: NotOwn) -> io::Error {
        match why {
            NotOwn::Absent => io::ErrorKind::NotFound.into(),
            NotOwn::Unknown(error) => error,
            why => io::Error::new(io::ErrorKind::ReadOnlyFilesystem, why.to_string()),
        }
    }
}

/// Mode and owner of a file that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permissions {
    /// Without the bits that change who a program runs as.
    mode: u32,
    /// `None` for the user of this process.
    owner: Option<(Uid, Gid)>,
}

impl Permissions {
    /// Of a new file, which belongs to the user of this process.
    pub const fn new_file(mode: u32) -> Permissions {
        Permissions {
            mode: mode & 0o777,
            owner: None,
        }
    }

    /// Gives them to `file`, which nobody else can open yet.
    ///
    /// In a user namespace an owner may have no number, and no file can be given to it. The file then stays with the user
    /// of this process, who was one of "the others" to the old file and gets no more than they had.
    pub(super) fn give_to(self, file: &File) -> io::Result<()> {
        let mut mode = self.mode;
        let now = fstat(file)?;
        if let Some((user, group)) = self.owner
            && (now.st_uid, now.st_gid) != (user.as_raw(), group.as_raw())
            && fchown(file, Some(user), Some(group)).is_err()
        {
            mode = (mode & 0o7) * 0o111;
        }
        Ok(fchmod(file, Mode::from_bits_truncate(mode))?)
    }
}
