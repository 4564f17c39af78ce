//! A directory of the container itself: the only kind that is written.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{Mode, SFlag, fstatat, mkdirat, mknodat};
use nix::unistd::{UnlinkatFlags, linkat, symlinkat, unlinkat};

use super::directory::single;
use super::found::proc_path;
use super::temporary::{self, Temporary};
use super::{Directory, FileType, Permissions};

/// What [`OwnDirectory::link`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linked {
    /// The link is new.
    Made,
    /// The link replaced a file or another link.
    Replaced,
    /// The link existed already, with the same target.
    Already,
}

/// An open directory that may be written: it is on the mount of the container's root, or on a tmpfs that the runtime
/// mounted for the container. [`super::ContainerRoot`] makes it and checks the handle that is in it.
#[derive(Debug)]
pub struct OwnDirectory(Directory);

impl OwnDirectory {
    /// Takes a directory whose handle was checked.
    pub(super) fn new(checked: Directory) -> OwnDirectory {
        OwnDirectory(checked)
    }

    /// Makes the directory `name`, with mode 0755 less the umask, or opens the existing one. It may not be the
    /// container's own, because something else may get its name before it is opened.
    ///
    /// # Errors
    /// Returns `NotADirectory` if something else has that name, such as a link to a directory.
    pub(super) fn make_directory(&self, name: &OsStr) -> io::Result<Directory> {
        let name = single(name)?;
        match mkdirat(self, name, Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(e) => return Err(e.into()),
        }
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(Directory::from_fd(openat(self, name, flags, Mode::empty())?))
    }

    /// Makes the empty file `name`, unless something has that name. Only a file or a socket can be mounted on.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(super) fn make_file(&self, name: &OsStr) -> io::Result<()> {
        match mknodat(self, single(name)?, SFlag::S_IFREG, Mode::from_bits_truncate(0o644), 0) {
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Makes `name` a symbolic link with the text `target`, and replaces the file or link of that name. The target is
    /// written as it is and not followed.
    ///
    /// # Errors
    /// Returns `IsADirectory` if `name` is a directory and `ResourceBusy` if something is mounted on it. Then nothing
    /// is changed.
    pub fn link(&self, name: &OsStr, target: &OsStr) -> io::Result<Linked> {
        let name = single(name)?;
        match symlinkat(target, self, name) {
            Err(Errno::EEXIST) => {}
            made => return Ok(made.map(|()| Linked::Made)?),
        }
        if readlinkat(self, name).is_ok_and(|now| now == target) {
            return Ok(Linked::Already);
        }
        let (link, ()) = Temporary::make(self.as_fd(), |temporary| symlinkat(target, self, temporary))?;
        link.rename_to(name)?;
        Ok(Linked::Replaced)
    }

    /// Makes `name` a regular file of these bytes (the umask does not apply), and replaces the file or link of that
    /// name. A reader sees the complete old file or the complete new one with its mode and owner.
    ///
    /// # Errors
    /// Returns the errors of [`Self::link`], or the kernel's error if the disk is full or cannot be written.
    pub fn replace(&self, name: &OsStr, bytes: &[u8], permissions: Permissions) -> io::Result<()> {
        self.replace_by(name, &|file| fill(file, bytes, permissions))
    }

    /// As [`Self::replace`], with a function that writes the new file, which no other process can open yet.
    pub(super) fn replace_by(&self, name: &OsStr, fill: &dyn Fn(&File) -> io::Result<()>) -> io::Result<()> {
        let name = single(name)?;
        let now = fstatat(self, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        // Renaming would fail, too. This check comes before anything is changed.
        if now.as_ref().is_ok_and(|now| FileType::of(now) == FileType::Directory) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // A file without a name disappears with this process, also if the process is killed.
        let flags = OFlag::O_TMPFILE | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let nameless = match openat(self, ".", flags, Mode::from_bits_truncate(0o600)) {
            Ok(fd) => File::from(fd),
            // Some file systems have no such files: overlayfs before Linux 6.1, fuse before 6.2, NFS, 9p.
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EISDIR | Errno::EINVAL | Errno::ENOENT) => {
                return self.replace_by_name(name, fill);
            }
            Err(e) => return Err(e.into()),
        };
        fill(&nameless)?;
        // Since Linux 6.10, a process may give a name to its own file. Before, it needs a privilege, or a path in
        // /proc.
        let place = |name: &OsStr| match linkat(&nameless, "", self, name, AtFlags::AT_EMPTY_PATH) {
            Err(Errno::ENOENT) => {
                let file = proc_path(nameless.as_fd());
                linkat(AT_FDCWD, file.as_str(), self, name, AtFlags::AT_SYMLINK_FOLLOW)
            }
            placed => placed,
        };
        // If the name exists, this is known to fail and not tried.
        let placed = now.map_or_else(|_| place(name), |_| Err(Errno::EEXIST));
        match placed {
            Ok(()) => Ok(()),
            // A hard link cannot replace a name, so the file gets another name first.
            Err(Errno::EEXIST) => Temporary::make(self.as_fd(), place)?.0.rename_to(name),
            Err(_) => self.replace_by_name(name, fill),
        }
    }

    fn replace_by_name(&self, name: &OsStr, fill: &dyn Fn(&File) -> io::Result<()>) -> io::Result<()> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let (new, fd) = Temporary::make(self.as_fd(), |temporary| {
            openat(self, temporary, flags, Mode::from_bits_truncate(0o600))
        })?;
        fill(&File::from(fd))?;
        new.rename_to(name)
    }

    /// Removes the temporary files and links of processes that were killed, of whatever age: nobody else may write in
    /// this directory now.
    ///
    /// # Errors
    /// Returns `FileTooLarge` if the directory has more than `limit` names, or the kernel's error.
    pub fn remove_left(&self, limit: usize) -> io::Result<()> {
        let names = self.names(limit)?;
        names
            .iter()
            .filter(|name| temporary::is_name(name))
            .try_for_each(|name| self.remove(name))
    }

    /// Removes the file or link `name`. Does nothing if it does not exist.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        match unlinkat(self, single(name)?, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

pub(super) fn fill(mut file: &File, bytes: &[u8], permissions: Permissions) -> io::Result<()> {
    file.write_all(bytes)?;
    permissions.give_to(file)
}

impl Deref for OwnDirectory {
    type Target = Directory;

    fn deref(&self) -> &Directory {
        &self.0
    }
}

impl AsFd for OwnDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::path::Path;

    use super::*;
    use crate::root::{ContainerRoot, HostDirectory};

    /// File systems without nameless files need the second way, which is tried on every one.
    #[test]
    fn a_file_can_be_replaced_by_name() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("other"), "other").unwrap();
        symlink("other", top.path().join("file")).unwrap();
        let root = ContainerRoot::open(&HostDirectory::open(top.path()).unwrap(), Path::new(".")).unwrap();
        let directory = root.own_directory(Path::new("/")).unwrap();
        let name = OsStr::new("file");
        let permissions = Permissions::new_file(0o640);
        let fill = |file: &File| fill(file, b"new", permissions);
        directory.replace_by_name(name, &fill).unwrap();
        let now = fs::symlink_metadata(top.path().join("file")).unwrap();
        assert!(now.is_file());
        assert_eq!(now.mode() & 0o7777, 0o640);
        assert_eq!(fs::read(top.path().join("file")).unwrap(), b"new");
        assert_eq!(fs::read(top.path().join("other")).unwrap(), b"other");
        assert_eq!(fs::read_dir(top.path()).unwrap().count(), 2, "nothing else is left");
        directory.remove(name).unwrap();
        directory.remove(name).unwrap();
        assert_eq!(fs::read_dir(top.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_temporary_name_leads_to_no_other_file() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("other"), "other").unwrap();
        symlink("other", top.path().join(".tranche-new")).unwrap();
        let root = ContainerRoot::open(&HostDirectory::open(top.path()).unwrap(), Path::new(".")).unwrap();
        let directory = root.own_directory(Path::new("/")).unwrap();
        let permissions = Permissions::new_file(0o640);
        directory
            .replace_by_name(OsStr::new("file"), &|file| fill(file, b"new", permissions))
            .unwrap();
        assert_eq!(fs::read(top.path().join("file")).unwrap(), b"new");
        assert_eq!(fs::read(top.path().join("other")).unwrap(), b"other");
    }

    #[test]
    fn a_directory_is_made_or_is_one_already() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("there")).unwrap();
        fs::write(top.path().join("file"), "").unwrap();
        symlink("there", top.path().join("link")).unwrap();
        let root = ContainerRoot::open(&HostDirectory::open(top.path()).unwrap(), Path::new(".")).unwrap();
        let directory = root.own_directory(Path::new("/")).unwrap();
        for name in ["new", "there"] {
            let made = directory.make_directory(OsStr::new(name)).unwrap();
            let inode = fs::metadata(top.path().join(name)).unwrap().ino();
            assert_eq!(made.identity().unwrap().1, inode, "{name}");
            let flags = rustix::io::fcntl_getfd(&made).unwrap();
            assert_eq!(flags, rustix::io::FdFlags::CLOEXEC, "{name}");
        }
        for name in ["file", "link"] {
            let refused = directory.make_directory(OsStr::new(name)).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::NotADirectory, "{name}");
        }
    }
}
