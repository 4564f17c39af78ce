//! Something in a container's root, held by a handle: what it is cannot change any more.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::dir::Type;
use nix::fcntl::{AT_FDCWD, OFlag, open};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, SFlag, fchmodat, fstat};
use rustix::buffer::spare_capacity;

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, a FIFO, a socket.
    Other,
}

impl Kind {
    /// What a file of this status is.
    pub fn of(status: &FileStat) -> Kind {
        match SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFREG => Kind::File,
            SFlag::S_IFDIR => Kind::Directory,
            SFlag::S_IFLNK => Kind::Link,
            _ => Kind::Other,
        }
    }
}

impl From<Type> for Kind {
    fn from(kind: Type) -> Kind {
        match kind {
            Type::File => Kind::File,
            Type::Directory => Kind::Directory,
            Type::Symlink => Kind::Link,
            _ => Kind::Other,
        }
    }
}

/// A file of whatever kind, held (`O_PATH`) and not opened. To look at it changes nothing, whatever it is, and it stays
/// the same file while the image's names move.
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
    pub fn kind(&self) -> Kind {
        Kind::of(&self.status)
    }

    /// Its permissions, including the set-user-id, set-group-id and sticky bits.
    pub fn mode(&self) -> u32 {
        self.status.st_mode & 0o7777
    }

    /// The file system (`st_dev`) that it is on.
    pub fn device(&self) -> u64 {
        self.status.st_dev
    }

    /// Whether it is a file with more names than one. The others may be anywhere on its file system.
    pub fn has_other_names(&self) -> bool {
        self.kind() != Kind::Directory && self.status.st_nlink > 1
    }

    /// Gives it these permissions.
    ///
    /// # Errors
    /// `InvalidInput` for a link, which has none.
    pub(super) fn set_mode(&self, mode: u32) -> io::Result<()> {
        if self.kind() == Kind::Link {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a link"));
        }
        // fchmod refuses a handle of this kind. Its entry in /proc leads to the very same file.
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
    /// `InvalidInput` for anything but a regular file, `FileTooLarge` beyond `limit` bytes.
    pub(super) fn read(&self, limit: u64) -> io::Result<Vec<u8>> {
        read_file(&self.open()?, &self.status, limit)
    }

    /// Opens it for reading, once it is known to be a regular file: the handle is the file, so nothing can be swapped
    /// between the look and the reading.
    ///
    /// # Errors
    /// `InvalidInput` for anything else: opening a device can be an act, and opening a FIFO can wait for ever.
    pub(super) fn open(&self) -> io::Result<File> {
        if self.kind() != Kind::File {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = open(self.proc_path().as_str(), flags, Mode::empty())?;
        // A name may mean another file by now, so the file is opened by the handle's entry in /proc. When hooks run, the
        // host's /proc is in sight, not the container's. If it is not the real one after all, the file is another.
        let opened = fstat(&file)?;
        if (opened.st_dev, opened.st_ino) != (self.status.st_dev, self.status.st_ino) {
            return Err(io::Error::other("/proc/self/fd gives another file"));
        }
        Ok(File::from(file))
    }

    /// The path under which calls that take nothing but a path get to the very file of the handle.
    pub(super) fn proc_path(&self) -> String {
        proc_path(self.fd.as_fd())
    }
}

/// The content of an open regular file, from its beginning.
///
/// # Errors
/// `FileTooLarge` beyond `limit` bytes.
pub(super) fn read_file(file: &File, status: &FileStat, limit: u64) -> io::Result<Vec<u8>> {
    let too_large = || io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {limit} bytes"));
    let size = u64::try_from(status.st_size).unwrap_or(0);
    if size > limit {
        return Err(too_large());
    }
    // The size is a hint only: a file of /proc says 0, and a file that grows says too little. One byte more shows the end
    // without another piece of memory.
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
