//! A directory of the host that is not an image's: a bundle, or a directory of tranche's own.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};
use rustix::buffer::spare_capacity;
use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};

use super::directory::single;
use super::found::read_file;
use super::own_directory::fill;
use super::{Directory, Found, OwnDirectory, Permissions};

/// The attribute with a file's SELinux context.
const LABEL: &str = "security.selinux";

/// The most bytes of a context. A longer one does not exist in practice, and is not kept.
const LONGEST_LABEL: usize = 4096;

/// An open directory of the host. Its path comes from an engine or an administrator, and not from an image, so what is
/// in it may be read and written as it is.
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
        // Opened through /proc, like every file: where /proc is not the kernel's, a hook thus ends before it touches
        // anything, and pathrs is not called, which would panic there.
        self.0.find(name)?.read(limit)
    }

    /// The content of the regular file that `name` leads to, also through links, and the open file.
    ///
    /// # Errors
    /// `FileTooLarge` beyond `limit` bytes, `InvalidInput` for anything that is not a regular file.
    pub fn read_followed(&self, name: &OsStr, limit: u64) -> io::Result<(Vec<u8>, File)> {
        let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
        let file = Found::from_fd(openat(&self.0, single(name)?, flags, Mode::empty())?)?.open()?;
        let bytes = read_file(&file, &fstat(&file)?, limit)?;
        Ok((bytes, file))
    }

    /// Whether `name` leads to the file of which `then` is known, and that was not written since.
    ///
    /// # Errors
    /// The kernel's error, if `name` leads to nothing.
    pub fn leads_to(&self, name: &OsStr, then: &FileStat) -> io::Result<bool> {
        let identity = |file: &FileStat| {
            (
                file.st_dev,
                file.st_ino,
                file.st_size,
                file.st_mtime,
                file.st_mtime_nsec,
            )
        };
        let now = fstatat(&self.0, single(name)?, AtFlags::empty())?;
        Ok(identity(&now) == identity(then))
    }

    /// Makes `name` a regular file of these bytes with the mode, the owner and the SELinux label of `old`. If `name` is
    /// a link, the link is replaced. A reader sees either the complete old file or the complete new one.
    ///
    /// # Errors
    /// The errors of [`OwnDirectory::replace`].
    pub fn replace_like(&self, name: &OsStr, bytes: &[u8], old: &File) -> io::Result<()> {
        let permissions = Permissions::of(old, &fstat(old)?);
        let old_label = label(old);
        self.0.replace_by(name, &|file| {
            fill(file, bytes, permissions)?;
            match &old_label {
                // An ordinary user may not set a label, and need not, because his files get the right one.
                Some(kept) if label(file).as_ref() != Some(kept) => {
                    Ok(fsetxattr(file, LABEL, kept, XattrFlags::empty())?)
                }
                _ => Ok(()),
            }
        })
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

/// The SELinux context of a file; `None` without SELinux, or on a file system without labels.
fn label(file: &File) -> Option<Vec<u8>> {
    let mut label = Vec::with_capacity(LONGEST_LABEL);
    fgetxattr(file, LABEL, spare_capacity(&mut label)).ok()?;
    Some(label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn a_link_is_followed_to_read_and_replaced_to_write() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        fs::write(at("target"), "old").unwrap();
        fs::set_permissions(at("target"), PermissionsExt::from_mode(0o640)).unwrap();
        symlink("target", at("link")).unwrap();
        let directory = HostDirectory::open(top.path()).unwrap();
        let name = OsStr::new("link");
        let (bytes, old) = directory.read_followed(name, 3).unwrap();
        assert_eq!(bytes, b"old");
        directory.replace_like(name, b"newer", &old).unwrap();
        let now = fs::symlink_metadata(at("link")).unwrap();
        assert!(now.is_file());
        assert_eq!(now.mode() & 0o7777, 0o640);
        assert_eq!(fs::read(at("link")).unwrap(), b"newer");
        assert_eq!(fs::read(at("target")).unwrap(), b"old");
        assert_eq!(fs::read_dir(top.path()).unwrap().count(), 2, "nothing else is left");
        assert_eq!(
            directory.read_followed(name, 3).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );
    }

    #[test]
    fn only_a_regular_file_is_read() {
        let top = tempfile::tempdir().unwrap();
        let directory = HostDirectory::open(top.path()).unwrap();
        nix::unistd::mkfifo(&top.path().join("fifo"), Mode::S_IRWXU).unwrap();
        fs::create_dir(top.path().join("directory")).unwrap();
        symlink("/dev/zero", top.path().join("device")).unwrap();
        for name in ["fifo", "directory", "device"] {
            let error = directory.read_followed(OsStr::new(name), 1 << 20).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
        }
    }
}
