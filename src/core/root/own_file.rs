//! A file of the image itself. Only such a file is read for the container.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::stat::{FileStat, Mode, fchmod, fstat};
use nix::unistd::{Gid, Uid, fchown};
use rustix::fs::fgetxattr;

use super::Found;

/// A regular file of the image, open for reading.
///
/// The hook runs as root, so it can read files that the container must not read. A link of the image may lead to such a
/// file, in a volume, in /proc or in /sys. So everything that gets into a file or a mount for the container is read
/// from this type. [`super::ContainerRoot::own`] makes it from the handle of a regular file with exactly one name, on
/// the mount of the container's root, on a file system that holds images. All later steps use this handle, and no path
/// is followed a second time.
#[derive(Debug)]
pub struct OwnFile {
    found: Found,
    file: File,
    status: FileStat,
}

/// Why a file is not one of the image's own.
#[derive(Debug, thiserror::Error)]
pub enum NotOwn {
    /// There is no such file, or what is there is not a regular file.
    #[error("it was not found")]
    Absent,
    /// It is on another mount than the root: a volume, /proc, /sys, /dev.
    #[error("it is not on the mount of the container's root")]
    OtherMount,
    /// The kernel does not report its mount.
    #[error("it is not known which mount it is on")]
    UnknownMount,
    /// Its file system is not one that holds images.
    #[error("its file system is not one that holds images")]
    FileSystem,
    /// The file has other names, which may be outside of the root.
    #[error("it has more than one name")]
    OtherNames,
    /// The kernel's error while it was found or opened.
    #[error(transparent)]
    Unknown(io::Error),
}

impl OwnFile {
    /// Opens `found`, whose mount and file system are known to be the image's.
    pub(super) fn open(found: Found) -> Result<OwnFile, NotOwn> {
        let file = found.open()?;
        // The status of the open file, which includes every change before it was opened.
        let status = fstat(&file).map_err(io::Error::from)?;
        if status.st_nlink != 1 {
            return Err(NotOwn::OtherNames);
        }
        Ok(OwnFile { found, file, status })
    }

    /// Its content, from the beginning.
    ///
    /// # Errors
    /// Returns `FileTooLarge` beyond `limit` bytes.
    pub fn read(&self, limit: u64) -> io::Result<Vec<u8>> {
        super::found::read_file(&self.file, &self.status, limit)
    }

    /// The file, to be read in parts.
    pub fn into_file(self) -> File {
        self.file
    }

    /// The permissions of a file that replaces it.
    pub fn permissions(&self) -> Permissions {
        Permissions::of(&self.file, &self.status)
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

impl From<NotOwn> for io::Error {
    /// `NotFound` for an absent file, the kernel's error, or `ReadOnlyFilesystem` for a file that is not the image's,
    /// which must not be changed.
    fn from(why: NotOwn) -> io::Error {
        match why {
            NotOwn::Absent => io::ErrorKind::NotFound.into(),
            NotOwn::Unknown(error) => error,
            why => io::Error::new(io::ErrorKind::ReadOnlyFilesystem, why),
        }
    }
}

/// Mode and owner of a file that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permissions {
    /// Without the set-user-id, set-group-id and sticky bits.
    mode: u32,
    /// `None` means the user of this process.
    owner: Option<(Uid, Gid)>,
}

impl Permissions {
    /// Permissions of a new file, which belongs to the user of this process.
    pub const fn new_file(mode: u32) -> Permissions {
        Permissions {
            mode: mode & 0o777,
            owner: None,
        }
    }

    /// Those of an open file with this status.
    pub(super) fn of(file: &File, status: &FileStat) -> Permissions {
        // If the file has an access control list, the group's bits are its mask (acl(5)), which may be more than the
        // group itself has.
        let listed = fgetxattr(file, "system.posix_acl_access", &mut [] as &mut [u8]).is_ok();
        Permissions {
            mode: status.st_mode & if listed { 0o707 } else { 0o777 },
            owner: Some((Uid::from_raw(status.st_uid), Gid::from_raw(status.st_gid))),
        }
    }

    /// Sets them on `file`, which no other process can open yet.
    ///
    /// In a user namespace an owner may have no number, and then no file can be given to it. The file stays with the
    /// user of this process and gets the permissions that the old file gave to all other users.
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
