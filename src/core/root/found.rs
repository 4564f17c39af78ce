//! A file of any kind in a container's root, held by a handle, so that it cannot be replaced.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::dir::Type;
use nix::fcntl::{AT_FDCWD, OFlag, open};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, SFlag, fchmodat, fstat};
use rustix::buffer::spare_capacity;

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, a FIFO, a socket.
    Other,
}

impl FileType {
    /// What a file of this status is.
    pub fn of(status: &FileStat) -> FileType {
        match SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFREG => FileType::File,
            SFlag::S_IFDIR => FileType::Directory,
            SFlag::S_IFLNK => FileType::Link,
            _ => FileType::Other,
        }
    }
}

impl From<Type> for FileType {
    fn from(kind: Type) -> FileType {
        match kind {
            Type::File => FileType::File,
            Type::Directory => FileType::Directory,
            Type::Symlink => FileType::Link,
            _ => FileType::Other,
        }
    }
}

/// A file of any kind, held (`O_PATH`) and not opened. Examining it has no effect on any kind of file, and it stays the
/// same file if its name changes.
#[derive(Debug)]
pub struct Found {
    fd: OwnedFd,
    status: FileStat,
}

impl Found {
    pub(super) fn from_fd(fd: OwnedFd) -> io::Result<Found> {
        let status = fstat(&fd)?;
        Ok(Found { fd, status })
    }

    /// What it is.
    pub fn kind(&self) -> FileType {
        FileType::of(&self.status)
    }

    /// Its permissions, including the set-user-id, set-group-id and sticky bits.
    pub fn mode(&self) -> u32 {
        self.status.st_mode & 0o7777
    }

    /// The number of the user that it belongs to.
    pub(super) fn owner(&self) -> u32 {
        self.status.st_uid
    }

    /// The file system (`st_dev`) that it is on.
    pub fn device(&self) -> u64 {
        self.status.st_dev
    }

    /// Whether the file has more than one name. The others may be anywhere on its file system.
    pub fn has_other_names(&self) -> bool {
        self.kind() != FileType::Directory && self.status.st_nlink > 1
    }

    /// Sets its permissions.
    ///
    /// # Errors
    /// Returns `InvalidInput` for a link, which has no permissions.
    pub(super) fn set_mode(&self, mode: u32) -> io::Result<()> {
        if self.kind() == FileType::Link {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a link"));
        }
        // fchmod refuses a handle of this kind. Its entry in /proc leads to the same file.
        let mode = Mode::from_bits_truncate(mode);
        Ok(fchmodat(
            AT_FDCWD,
            self.proc_path().as_str(),
            mode,
            FchmodatFlags::FollowSymlink,
        )?)
    }

    /// Its content.
    ///
    /// # Errors
    /// Returns `InvalidInput` if it is not a regular file, and `FileTooLarge` beyond `limit` bytes.
    pub(super) fn read(&self, limit: u64) -> io::Result<Vec<u8>> {
        read_file(&self.open()?, &self.status, limit)
    }

    /// Opens it for reading if it is a regular file. The handle that was checked is the one that is opened.
    ///
    /// # Errors
    /// Returns `InvalidInput` for any other kind: opening a device may have an effect, and opening a FIFO may wait for
    /// ever.
    pub(super) fn open(&self) -> io::Result<File> {
        if self.kind() != FileType::File {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = open(self.proc_path().as_str(), flags, Mode::empty())?;
        // The name may belong to another file by now, so the file is opened by the handle's entry in /proc. While hooks
        // run, /proc is the host's. If it is not, another file is opened, which is checked here.
        let opened = fstat(&file)?;
        if (opened.st_dev, opened.st_ino) != (self.status.st_dev, self.status.st_ino) {
            return Err(io::Error::other("/proc/self/fd gives another file"));
        }
        Ok(File::from(file))
    }

    /// The path of the handle's file for system calls that take a path only.
    pub(super) fn proc_path(&self) -> String {
        proc_path(self.fd.as_fd())
    }
}

/// The content of an open regular file, from its beginning.
///
/// # Errors
/// Returns `FileTooLarge` beyond `limit` bytes.
pub(super) fn read_file(file: &File, status: &FileStat, limit: u64) -> io::Result<Vec<u8>> {
    let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {limit} bytes"));
    let size = u64::try_from(status.st_size).unwrap_or(0);
    if size > limit {
        return Err(too_large());
    }
    // The size is only a hint: it is 0 for a file of /proc, and too small for a file that grows. With one more byte,
    // the end is found without another allocation.
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
    loop {
        bytes.reserve(1);
        match rustix::io::retry_on_intr(|| rustix::io::read(file, spare_capacity(&mut bytes)))? {
            0 => return Ok(bytes),
            _ if bytes.len() as u64 > limit => return Err(too_large()),
            _ => {}
        }
    }
}

/// See [`Found::proc_path`].
pub(super) fn proc_path(handle: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

impl AsFd for Found {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<Found> for OwnedFd {
    fn from(found: Found) -> OwnedFd {
        found.fd
    }
}
