//! The ledger's directory, held open. All files of the ledger are reached from this one handle by a single name, so
//! that nothing that is done to paths above it can lead a write elsewhere.

use crate::bounded;
use crate::error::{Context, Error, Result};
use crate::root::{HostDirectory, Missing, is_in_user_namespace};
use crate::types::{KEPT_DIR, STATE_DIR};
use nix::unistd::geteuid;
use rustix::fs::{self, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The name of the ledger's directory in a state directory.
const NAME: &str = "ledger";

/// The most names in the directory: a book for each GPU, the lock, and what other programs put there.
const MOST_NAMES: usize = 16 << 10;

/// A directory that is open, and the path by which messages name it.
#[derive(Debug)]
pub struct LedgerDirectory {
    directory: HostDirectory,
    path: PathBuf,
}

impl LedgerDirectory {
    /// The directory `ledger` in `state_dir`; `None` where one of them is missing and is not to be made.
    ///
    /// # Errors
    /// Returns an error if another user could replace or write the ledger or a directory on the way to it: that user
    /// could promise a share twice, or have root write files elsewhere.
    pub(super) fn ledger(state_dir: &Path, missing: Missing) -> Result<Option<Self>> {
        let directory = HostDirectory::in_state_dir(state_dir, NAME, missing)?;
        let path = state_dir.join(NAME);
        Ok(directory.map(|directory| Self { directory, path }))
    }

    /// The directory `name` in this one, which only its owner may enter; `None` if it is missing and is not to be made.
    ///
    /// # Errors
    /// Returns an error if it is not a directory of the user who runs this, or if others may enter it.
    pub(super) fn below(&self, name: &str, missing: Missing) -> Result<Option<Self>> {
        let path = self.path.join(name);
        let directory = self.directory.private(name, &path, missing)?;
        Ok(directory.map(|directory| Self { directory, path }))
    }

    /// The directory `name` beside this one, which other users may read; `None` if it is missing.
    ///
    /// # Errors
    /// Returns an error if it is not a directory of the user who runs this, or if others may write it.
    pub(super) fn beside(&self, name: &str) -> Result<Option<Self>> {
        let path = self.path.with_file_name(name);
        let directory = self.directory.readable_beside(name, &path)?;
        Ok(directory.map(|directory| Self { directory, path }))
    }

    /// The state directory.
    ///
    /// # Errors
    /// Returns an error if another user could replace the directory or one on the way to it.
    pub fn state(path: &Path, missing: Missing) -> Result<Option<Self>> {
        let directory = HostDirectory::state_dir(path, missing)?;
        let path = path.to_owned();
        Ok(directory.map(|directory| Self { directory, path }))
    }

    /// The path of `name` in it, for a message.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Opens the file `name` for reading and writing, and creates it if it is missing.
    ///
    /// # Errors
    /// Returns an error if what has that name is not a file of this ledger.
    pub(super) fn open_or_make(&self, name: &str) -> Result<OwnedFd> {
        Ok(self.open_with(name, OFlags::empty())?.0)
    }

    /// As [`LedgerDirectory::open_or_make`], and each write goes to the end of the file. Returns also its size.
    pub(super) fn open_to_append(&self, name: &str) -> Result<(OwnedFd, u64)> {
        let (file, status) = self.open_with(name, OFlags::APPEND)?;
        Ok((file, u64::try_from(status.st_size).unwrap_or(0)))
    }

    fn open_with(&self, name: &str, more: OFlags) -> Result<(OwnedFd, Stat)> {
        // NONBLOCK: to open a FIFO would wait for its other end.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | more;
        let file = fs::openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR)
            .about(self.path(name).display(), "cannot be opened")?;
        let status = self.check_file(name, &file)?;
        Ok((file, status))
    }

    /// Refuses what this ledger cannot have made under `name`: another kind of file, one of another user or that other
    /// users may write, and one that has a second name elsewhere. Returns what is known of it.
    fn check_file(&self, name: &str, file: &OwnedFd) -> Result<Stat> {
        let about = self.path(name);
        let status = fs::fstat(file).about(about.display(), "cannot be read")?;
        let wrong = if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            "is not a regular file"
        } else if status.st_uid != rustix::process::geteuid().as_raw() {
            "belongs to another user"
        } else if status.st_mode & 0o022 != 0 {
            "may be written by other users"
        } else if status.st_nlink > 1 {
            // A file that was replaced while it was read has no name any more: that is in order.
            "has another name as well (a hard link)"
        } else {
            return Ok(status);
        };
        Err(Error::failed(about.display(), wrong).hint("tranche did not make it; remove it"))
    }

    /// The directory itself, opened once more: a lock on it is one of its own.
    pub(super) fn again(&self) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::openat(&self.directory, ".", flags, Mode::empty()).about(self.path.display(), "cannot be opened")
    }

    /// What the kernel says of the directory.
    pub(super) fn status(&self) -> Result<Stat> {
        fs::fstat(&self.directory).about(self.path.display(), "cannot be read")
    }

    /// Whether `file` is what `name` leads to.
    pub(super) fn is(&self, name: &str, file: &OwnedFd) -> Result<bool> {
        let about = self.path(name);
        let open = fs::fstat(file).about(about.display(), "cannot be read")?;
        let named = self
            .directory
            .status(name.as_ref())
            .about(about.display(), "cannot be read")?;
        Ok(named.is_some_and(|named| (named.st_dev, named.st_ino) == (open.st_dev, open.st_ino)))
    }

    /// The content of `name`, at most `most` bytes of it; `None` if the file does not exist.
    pub fn read(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>> {
        let file = self.open(name)?;
        file.map(|file| self.read_file(name, file, most)).transpose()
    }

    /// Opens `name` for reading; `None` if the file does not exist.
    pub(super) fn open(&self, name: &str) -> Result<Option<OwnedFd>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match fs::openat(&self.directory, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            file => file.map(Some).about(self.path(name).display(), "cannot be read"),
        }
    }

    /// The content of `file`, which is `name`, at most `most` bytes of it.
    pub(super) fn read_file(&self, name: &str, file: OwnedFd, most: u64) -> Result<Vec<u8>> {
        let about = self.path(name);
        let status = self.check_file(name, &file)?;
        let size = usize::try_from(status.st_size).unwrap_or(0);
        // One byte more than there is: the end is seen without a second buffer.
        let mut bytes = Vec::with_capacity(size.min(usize::try_from(most).unwrap_or(size)) + 1);
        File::from(file)
            .take(most)
            .read_to_end(&mut bytes)
            .about(about.display(), "cannot be read")?;
        Ok(bytes)
    }

    /// Creates the file `name`, which must not exist, for its owner alone.
    fn create(&self, name: &str) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = fs::openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR)?;
        // A umask may have taken away permissions that its owner needs.
        fs::fchmod(&file, Mode::RUSR | Mode::WUSR).inspect_err(|_| self.discard(name))?;
        Ok(file)
    }

    /// Puts a file with this text in the place of `name`: it is written as `new` and then renamed, so that a reader of
    /// `name` finds the old text or the new one. The caller holds the lock, so one name serves all writers. Nothing is
    /// synced to a disk, because the directory ends with the machine.
    ///
    /// What has the name `new` already is removed and not opened: a process that was killed left it, or it is a link, a
    /// FIFO or a file with a second name that another program put there.
    pub(super) fn replace(&self, name: &str, new: &str, text: &str) -> Result<()> {
        self.write(new, text)?;
        self.give_name(new, name)
    }

    /// As [`LedgerDirectory::replace`], and waits until it is on the disk: a loss of power leaves the old text or the
    /// new one. Where it fails, no half of a file is left.
    pub(super) fn replace_on_disk(&self, name: &str, new: &str, text: &str) -> Result<()> {
        self.write_to_disk(new, text)?;
        self.give_name(new, name)?;
        self.sync()
    }

    /// Writes a file with this text as `new`. Where that fails, no half of it is left.
    pub(super) fn write(&self, new: &str, text: &str) -> Result<()> {
        self.write_with(new, |file| file.write_all(text.as_bytes()))
    }

    /// As [`LedgerDirectory::write`], and waits until its content is on the disk.
    pub(super) fn write_to_disk(&self, new: &str, text: &str) -> Result<()> {
        self.write_with(new, |file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
    }

    fn write_with(&self, new: &str, write: impl FnOnce(&mut File) -> io::Result<()>) -> Result<()> {
        let mut file = File::from(self.create_anew(new)?);
        let written = write(&mut file).about(self.path(new).display(), "cannot be written");
        written.inspect_err(|_| self.discard(new))
    }

    fn give_name(&self, new: &str, name: &str) -> Result<()> {
        self.rename(new, name).inspect_err(|_| self.discard(new))
    }

    /// Removes what was written as `new`. A disk that takes nothing may not let it go either, and what was wrong before
    /// is the reason that counts.
    pub(super) fn discard(&self, new: &str) {
        let _ = self.remove(new);
    }

    /// Waits until the names of its files are on the disk.
    pub(super) fn sync(&self) -> Result<()> {
        let synced = File::from(self.again()?).sync_all();
        synced.about(self.path.display(), "cannot be written to the disk")
    }

    /// Creates the file `name` for its owner alone. What has that name already is removed and not opened.
    pub(super) fn create_anew(&self, name: &str) -> Result<OwnedFd> {
        let file = match self.create(name) {
            Err(Errno::EXIST) => {
                self.remove(name)?;
                self.create(name)
            }
            file => file,
        };
        file.about(self.path(name).display(), "cannot be created")
    }

    /// Gives the file `new` the name `name`, in place of what has that name.
    pub(super) fn rename(&self, new: &str, name: &str) -> Result<()> {
        fs::renameat(&self.directory, new, &self.directory, name).about(self.path(name).display(), "cannot be replaced")
    }

    /// Removes `name`, if it exists.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        let removed = self.directory.remove(name.as_ref());
        removed.about(self.path(name).display(), "cannot be removed")
    }

    /// All names in it.
    pub(super) fn names(&self) -> Result<Vec<OsString>> {
        let names = self.directory.names(MOST_NAMES);
        names.about(self.path.display(), "cannot be listed")
    }
}

/// The content of the file `name` in `dir`, at most `most` bytes of it; `None` if it does not exist. Every user may
/// read such a file, and root believes only one that no other user could have written. In a user namespace no file
/// seems to belong to root.
///
/// # Errors
/// Returns an error if it cannot be read, is no regular file or has more bytes, or if another user could have written
/// it.
pub fn read_public(dir: &Path, name: &str, most: u64) -> Result<Option<Vec<u8>>> {
    let path = dir.join(name);
    let file = match bounded::regular_file(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.about(path.display(), "cannot be read")?,
    };
    if is_in_user_namespace() || !geteuid().is_root() {
        return bounded::read(file, most)
            .about(path.display(), "cannot be read")
            .map(Some);
    }
    let directory = LedgerDirectory::state(dir, Missing::Leave)?;
    // It may have been removed since.
    let bytes = directory.map(|directory| directory.read(name, most));
    Ok(bytes.transpose()?.flatten())
}

/// The directory for what outlives a boot, of a node whose ledger is in `state_dir`.
pub fn kept_dir(state_dir: &Path) -> PathBuf {
    match state_dir == Path::new(STATE_DIR) {
        true => PathBuf::from(KEPT_DIR),
        // Another ledger, such as that of a test, has reservations of its own.
        false => state_dir.join("kept"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::{FdFlags, fcntl_getfd};
    use std::os::fd::AsFd;

    #[test]
    fn a_name_leads_to_one_file_which_no_other_program_inherits() {
        let state = tempfile::tempdir().unwrap();
        let directory = LedgerDirectory::ledger(state.path(), Missing::Make).unwrap().unwrap();
        let file = directory.open_or_make("lock").unwrap();
        for fd in [
            file.as_fd(),
            directory.again().unwrap().as_fd(),
            directory.directory.as_fd(),
        ] {
            assert_eq!(fcntl_getfd(fd).unwrap(), FdFlags::CLOEXEC);
        }
        assert_eq!(directory.names().unwrap(), ["lock"]);
        assert!(directory.is("lock", &file).unwrap());
        directory.remove("lock").unwrap();
        assert!(!directory.is("lock", &file).unwrap());
        let other = directory.open_or_make("lock").unwrap();
        assert!(!directory.is("lock", &file).unwrap() && directory.is("lock", &other).unwrap());
    }
}
