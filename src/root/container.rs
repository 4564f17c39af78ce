//! The root directory of a container that is being made.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fstat, stat};
use pathrs::Root;
use pathrs::error::ErrorKind;
use rustix::fs::{OFlags, ResolveFlags, openat2};

use super::mount::MountId;
use super::proc_file::ContainerProcFile;
use super::{
    Directory, Found, HostDirectory, Kind, MountOrigin, NotOwn, OwnDirectory, OwnFile, Permissions, RuntimeMount,
    file_system,
};

/// How often a look-up is tried again when the kernel gives up on it because something was renamed meanwhile.
/// pathrs tries 128 times in each; an image that renames without end gets an error, not our time.
const TRIES: usize = 8;

/// A container's root directory.
///
/// A path is resolved inside it as the container would see it: absolute links and `..` end at this directory, and the
/// magic links of /proc are refused. The kernel does it (`openat2` with `RESOLVE_IN_ROOT`, Linux 5.6), or, where it
/// cannot or may not, pathrs' walk of `O_PATH` handles. Which of the two is found out at run time and makes no
/// difference to the result.
///
/// A path that stays inside may still lead to something that is not the image's: a volume, /proc, /sys. Three types keep
/// them apart. [`Found`] and [`Directory`] can be looked at, [`OwnFile`] can be read, [`OwnDirectory`] can be written.
///
/// Errors are plain [`io::Error`]s: the caller knows which object the work was about.
#[derive(Debug)]
pub struct ContainerRoot {
    root: Root,
    /// The mount that the root directory is on, if the kernel says.
    mount: Option<MountId>,
    /// Whether that mount's file system may hold an image.
    holds_images: bool,
    /// What the runtime mounted in the root.
    mounts: Arc<[RuntimeMount]>,
    /// The SELinux context of what is mounted for the container.
    label: Option<String>,
}

impl ContainerRoot {
    /// Takes the directory that `path` leads to on the host, from `from` if it is relative. `path` is the engine's
    /// word, not the image's: it is followed like any other path.
    pub fn open(from: &HostDirectory, path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Self::from_fd(openat(from, path, flags, Mode::empty())?))
    }

    /// Takes an open directory (`O_PATH` is enough).
    pub fn from_fd(directory: OwnedFd) -> Self {
        ContainerRoot {
            mount: MountId::of(&directory).ok(),
            holds_images: file_system::holds_images(&directory).unwrap_or(false),
            root: Root::from_fd(directory),
            mounts: Arc::default(),
            label: None,
        }
    }

    /// Sets what the runtime mounted in the root. What is not in this list is neither written nor read.
    #[must_use]
    pub fn with_mounts(mut self, mounts: Arc<[RuntimeMount]>) -> Self {
        self.mounts = mounts;
        self
    }

    /// Sets the SELinux context of what is mounted for the container, where the host has SELinux.
    #[must_use]
    pub fn with_label(mut self, label: Option<String>) -> Self {
        self.label = label;
        self
    }

    /// Whether it is the root directory of this process, maybe by another mount.
    pub fn is_the_hosts(&self) -> io::Result<bool> {
        let (own, host) = (fstat(self.root.as_fd())?, stat("/")?);
        Ok((own.st_dev, own.st_ino) == (host.st_dev, host.st_ino))
    }

    /// Whether `other` is the same directory on the same file system, maybe by another mount.
    pub fn is_same_as(&self, other: &Self) -> io::Result<bool> {
        let (a, b) = (fstat(self.root.as_fd())?, fstat(other.root.as_fd())?);
        Ok((a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
    }

    /// Whether `place` is on the mount of the root directory, and that mount may hold an image.
    ///
    /// # Errors
    /// Returns why not, as [`OwnFile`] needs it.
    pub fn check_image(&self, place: impl AsFd) -> Result<(), NotOwn> {
        match (self.mount, MountId::of(place).ok()) {
            (Some(root), Some(here)) if root != here => Err(NotOwn::OtherMount),
            (Some(_), Some(_)) if self.holds_images => Ok(()),
            (Some(_), Some(_)) => Err(NotOwn::FileSystem),
            _ => Err(NotOwn::UnknownMount),
        }
    }

    /// Refuses a place that is not to be written: a volume or anything else of the host to which the user, or a link of
    /// the image, gave a name that the hook writes; and the file systems of the kernel, which are the host's too. What
    /// may be written is the image itself, and a tmpfs that the runtime made for the container.
    ///
    /// # Errors
    /// `ReadOnlyFilesystem`: it is read-only to the hook.
    pub fn check_own(&self, place: impl AsFd) -> io::Result<()> {
        match self.check_image(&place) {
            Err(NotOwn::OtherMount) if self.is_new_tmpfs(&place)? => Ok(()),
            other => other.map_err(io::Error::from),
        }
    }

    /// Whether `place` is on a tmpfs that the runtime made for the container.
    fn is_new_tmpfs(&self, place: impl AsFd) -> io::Result<bool> {
        if !file_system::is_tmpfs(&place)? {
            return Ok(false);
        }
        let here = MountId::of(place)?;
        // Mounts are compared and not their paths, since a link of the image may be in the way.
        let at = |path: &Path| {
            let mount = self.resolve(path).and_then(MountId::of);
            mount.is_ok_and(|mount| mount == here)
        };
        let relevant = self.mounts.iter().filter(|mount| mount.origin != MountOrigin::Other);
        let mut origins = relevant
            .filter(|mount| at(&mount.at))
            .map(|mount| mount.origin)
            .peekable();
        Ok(origins.peek().is_some() && origins.all(|origin| origin == MountOrigin::NewTmpfs))
    }

    /// Whether `place`, which was found at `path`, is what the runtime mounted there or above: the path leads to it
    /// because the engine was asked for that, and not because a link of the image goes there.
    fn is_mounted_for(&self, path: &Path, place: impl AsFd) -> io::Result<bool> {
        let here = MountId::of(place)?;
        // As bytes: there may be a hundred mounts for each of a hundred files, and engines write both in normal form.
        let path = path.as_os_str().as_bytes();
        let is_at_or_above = |mount: &&RuntimeMount| {
            let rest = path.strip_prefix(mount.at.as_os_str().as_bytes());
            mount.origin != MountOrigin::Other && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        for mount in self.mounts.iter().filter(is_at_or_above) {
            if MountId::of(self.resolve(&mount.at)?)? == here {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The directory that the container sees at `path`.
    ///
    /// # Errors
    /// `NotFound` if there is none, `NotADirectory` if something else is there.
    pub fn directory(&self, path: &Path) -> io::Result<Directory> {
        let found = self.find(path)?;
        if found.kind() != Kind::Directory {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Directory::from_fd(found.into()))
    }

    /// As [`Self::directory`], to be read for the container: it is the image's own, or what the engine mounted at
    /// `path`. A link of the image to a directory of a volume is refused, since names that only root can read would
    /// get into files that everybody in the container can read.
    ///
    /// # Errors
    /// As [`Self::directory`] and [`Self::check_own`].
    pub fn readable_directory(&self, path: &Path) -> io::Result<Directory> {
        let directory = self.directory(path)?;
        match self.check_own(&directory) {
            Err(_) if self.is_mounted_for(path, &directory)? => Ok(directory),
            checked => checked.map(|()| directory),
        }
    }

    /// As [`Self::directory`], to be written.
    ///
    /// # Errors
    /// As [`Self::directory`] and [`Self::check_own`].
    pub fn own_directory(&self, path: &Path) -> io::Result<OwnDirectory> {
        self.checked(self.directory(path)?)
    }

    /// As [`Self::own_directory`], but what is missing of `path` is made, with mode 0755 less the process's umask.
    /// `path` must be absolute and in normal form.
    ///
    /// # Errors
    /// As [`Self::own_directory`].
    pub fn make_directory(&self, path: &Path) -> io::Result<OwnDirectory> {
        match self.own_directory(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let (parent, name) = split(path)?;
                // Somebody may have given the name to a mount point since it was found missing.
                self.checked(self.make_directory(parent)?.make_directory(name)?)
            }
            found => found,
        }
    }

    fn checked(&self, directory: Directory) -> io::Result<OwnDirectory> {
        self.check_own(&directory).map(|()| OwnDirectory::new(directory))
    }

    /// The directory that holds `path`'s last name, made if need be, and that name. `path` must be absolute and in
    /// normal form: no `.` or `..`, and not the root itself.
    pub fn make_parent<'p>(&self, path: &'p Path) -> io::Result<(OwnDirectory, &'p OsStr)> {
        let (parent, name) = split(path)?;
        Ok((self.make_directory(parent)?, name))
    }

    /// What `path` leads to, held but not opened. Links in the way are followed inside the root, a link at its end too.
    ///
    /// # Errors
    /// `NotFound` if there is nothing, and what the kernel says of a path that loops or climbs through a file.
    pub fn find(&self, path: &Path) -> io::Result<Found> {
        Found::from_fd(self.resolve(path)?)
    }

    /// The file that `path` leads to, if it is one of the image's own.
    ///
    /// # Errors
    /// As [`Self::own`].
    pub fn own_file(&self, path: &Path) -> Result<OwnFile, NotOwn> {
        self.own(self.find(path)?)
    }

    /// `found`, if it is one of the image's own files: a regular file with exactly one name, on the mount of the root
    /// itself, on a file system that holds images.
    ///
    /// # Errors
    /// Returns which of these it is not.
    pub fn own(&self, found: Found) -> Result<OwnFile, NotOwn> {
        // Before it is opened: to open a file of the kernel can be an act.
        if found.kind() != Kind::File {
            return Err(NotOwn::Absent);
        }
        self.check_image(&found)?;
        OwnFile::open(found)
    }

    /// Opens a library for its description: one of the image's own, or one that the engine mounted at `path`, as it
    /// mounts the driver's.
    ///
    /// # Errors
    /// As [`Self::own`].
    pub fn library(&self, found: Found, path: &Path) -> Result<File, NotOwn> {
        match self.check_image(&found) {
            Ok(()) => self.own(found).map(OwnFile::into_file),
            Err(NotOwn::OtherMount) if self.is_mounted_for(path, &found)? => Ok(found.open()?),
            Err(why) => Err(why),
        }
    }

    /// Gives `found` these permissions.
    ///
    /// # Errors
    /// As [`Self::check_own`]; for a link, and for a file with more than one name, of which one may be the host's.
    pub fn set_mode(&self, found: &Found, mode: u32) -> io::Result<()> {
        self.check_own(found)?;
        if found.has_other_names() {
            return Err(NotOwn::OtherNames.into());
        }
        found.set_mode(mode)
    }

    /// Lays a file of these bytes over `target`, which was read, without a change to any file system: by a mount that
    /// goes when the container goes. It can be read and not written, and has the mode and owner of `target`.
    ///
    /// # Errors
    /// Returns an error if the mount of the root is shared with the host, if the kernel does not take the label of
    /// [`Self::with_label`], without the right to mount, and before Linux 5.2.
    pub fn cover(&self, target: &OwnFile, bytes: &[u8]) -> io::Result<()> {
        super::cover::cover(
            self.root.as_fd(),
            target.as_fd(),
            bytes,
            target.permissions(),
            self.label.as_deref(),
        )
    }

    /// The file of these names below the container's own /proc.
    ///
    /// # Errors
    /// As [`ContainerProcFile::find`].
    pub fn file_in_proc(&self, names: &[&str]) -> io::Result<ContainerProcFile> {
        let root = self.directory(Path::new("/"))?;
        ContainerProcFile::find(root, names)
    }

    /// As [`Self::cover`], over a file of the container's /proc.
    ///
    /// # Errors
    /// As [`Self::cover`].
    pub fn cover_in_proc(&self, target: &ContainerProcFile, bytes: &[u8], permissions: Permissions) -> io::Result<()> {
        let label = self.label.as_deref();
        super::cover::cover(self.root.as_fd(), target.as_fd(), bytes, permissions, label)
    }

    /// Finds what `path` leads to, without opening it (`O_PATH`), until nobody moves it meanwhile.
    fn resolve(&self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..TRIES {
            match openat2(self.root.as_fd(), path, flags, rustix::fs::Mode::empty(), inside) {
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                // A kernel, or a filter of system calls, that does not know this one.
                Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => return self.walk(path),
                // Asked directly, since pathrs takes eight more system calls to describe an error.
                found => return Ok(found?),
            }
        }
        Err(Errno::EAGAIN.into())
    }

    /// As [`Self::resolve`], by pathrs' walk.
    fn walk(&self, path: &Path) -> io::Result<OwnedFd> {
        let mut last = io::Error::from(Errno::EAGAIN);
        for _ in 0..TRIES {
            match self.root.resolve(path) {
                Ok(found) => return Ok(found.into()),
                Err(e) => {
                    last = match e.kind() {
                        ErrorKind::OsError(Some(errno)) => io::Error::from_raw_os_error(errno),
                        // The walk's word for a path that moved under it; the kernel says EAGAIN.
                        ErrorKind::SafetyViolation => io::Error::other("the path changed while it was followed"),
                        _ => io::Error::other(e.to_string()),
                    };
                    if !e.can_retry() {
                        break;
                    }
                }
            }
        }
        Err(last)
    }
}

impl AsFd for ContainerRoot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }
}

/// Cuts the last name off. A path that has no name at its end, or climbs, is not one that we were meant to write.
fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    let normal = path
        .components()
        .all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if normal && path.has_root() && !path.as_os_str().as_bytes().ends_with(b"/") => {
            Ok((parent, name))
        }
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not an absolute path in normal form",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_absolute_path_has_a_parent() {
        let parts = split(Path::new("/usr/lib/libcuda.so")).unwrap();
        assert_eq!(parts, (Path::new("/usr/lib"), OsStr::new("libcuda.so")));
        assert_eq!(split(Path::new("/x")).unwrap(), (Path::new("/"), OsStr::new("x")));
        for bad in ["", "/", "x", "a/b", "/a/..", "/a/../b", "/a/", "..", "."] {
            assert!(split(Path::new(bad)).is_err(), "{bad:?}");
        }
    }
}
