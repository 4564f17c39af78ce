//! The root directory of a container that is being created.

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
    Directory, FileType, Found, HostDirectory, MountOrigin, NotOwn, OwnDirectory, OwnFile, Permissions, RuntimeMount,
    file_system,
};

/// How often a look-up is repeated if the kernel gives up because something was renamed meanwhile. pathrs tries 128
/// times in each. An image that renames without end gets an error.
const TRIES: usize = 8;

/// A container's root directory.
///
/// A path is resolved inside it as the container would see it: absolute links and `..` end at this directory, and the
/// magic links of /proc are refused. The kernel does it (`openat2` with `RESOLVE_IN_ROOT`, Linux 5.6), or, if that call
/// is missing or forbidden, pathrs' walk of `O_PATH` handles. Both give the same result.
///
/// A path inside may still lead to something that is not the image's: a volume, /proc, /sys. Types distinguish these:
/// [`Found`] and [`Directory`] can be examined, [`OwnFile`] can be read, and [`OwnDirectory`] can be written.
///
/// Errors are plain [`io::Error`]s: the caller knows which object the work was about.
#[derive(Debug)]
pub struct ContainerRoot {
    root: Root,
    /// The mount that the root directory is on, if the kernel reports it.
    mount: Option<MountId>,
    /// Whether that mount's file system may hold an image.
    holds_images: bool,
    /// What the runtime mounted in the root.
    mounts: Arc<[RuntimeMount]>,
    /// The SELinux context of what is mounted for the container.
    label: Option<String>,
}

impl ContainerRoot {
    /// Opens the directory at `path` on the host, relative to `from`. The path comes from the engine and not from the
    /// image, so it is followed like any other path.
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

    /// Sets the runtime's mounts in the root. Other mounts are neither written nor read.
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

    /// Whether it is the root directory of this process, possibly by another mount.
    pub fn is_the_hosts(&self) -> io::Result<bool> {
        let (own, host) = (fstat(self.root.as_fd())?, stat("/")?);
        Ok((own.st_dev, own.st_ino) == (host.st_dev, host.st_ino))
    }

    /// Whether `other` is the same directory on the same file system, possibly by another mount.
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

    /// Refuses a place that must not be written. Only the image itself may be written, and a tmpfs that the runtime
    /// made for the container: not a volume or another file system of the host to which a link of the image leads,
    /// and not a file system of the kernel.
    ///
    /// # Errors
    /// Returns `ReadOnlyFilesystem`.
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
        // Mounts are compared and not their paths, because a path may have a link of the image in it.
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

    /// Whether `place`, which was found at `path`, is on a mount that the runtime made at that path or above it.
    /// Otherwise a link of the image led to it.
    fn is_mounted_for(&self, path: &Path, place: impl AsFd) -> io::Result<bool> {
        let here = MountId::of(place)?;
        // Compared as bytes for speed: there may be a hundred mounts for each of a hundred files. Engines write both in
        // normal form.
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
    /// Returns `NotFound` if there is nothing, and `NotADirectory` if something else is there.
    pub fn directory(&self, path: &Path) -> io::Result<Directory> {
        let found = self.find(path)?;
        if found.kind() != FileType::Directory {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Directory::from_fd(found.into()))
    }

    /// The directory at `path`, to be read for the container: the image's own, or one that the engine mounted at
    /// `path`. A link of the image to a directory of a volume is refused: names that only root may read would get
    /// into files that every user of the container may read.
    ///
    /// # Errors
    /// Returns the errors of [`Self::directory`] and [`Self::check_own`].
    pub fn readable_directory(&self, path: &Path) -> io::Result<Directory> {
        let directory = self.directory(path)?;
        match self.check_own(&directory) {
            Err(_) if self.is_mounted_for(path, &directory)? => Ok(directory),
            checked => checked.map(|()| directory),
        }
    }

    /// The directory at `path`, to be written.
    ///
    /// # Errors
    /// Returns the errors of [`Self::directory`] and [`Self::check_own`].
    pub fn own_directory(&self, path: &Path) -> io::Result<OwnDirectory> {
        self.checked(self.directory(path)?)
    }

    /// The directory at `path`, to be written. Missing directories are made with mode 0755 less the umask. `path` must
    /// be absolute and in normal form.
    ///
    /// # Errors
    /// Returns the errors of [`Self::own_directory`].
    pub fn make_directory(&self, path: &Path) -> io::Result<OwnDirectory> {
        match self.own_directory(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let (parent, name) = split(path)?;
                // The name may have become a mount point since it was found missing.
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

    /// The file at `path`, held but not opened. All links are followed inside the root, also a link at the end.
    ///
    /// # Errors
    /// Returns `NotFound` if there is nothing, or the kernel's error.
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
        // Checked before it is opened, because opening a file of the kernel may have an effect.
        if found.kind() != FileType::File {
            return Err(NotOwn::Absent);
        }
        self.check_image(&found)?;
        OwnFile::open(found)
    }

    /// Opens a library to read its SONAME and ABI: one of the image's own, or one that the engine mounted at `path`,
    /// such as the driver's.
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

    /// Sets the permissions of `found`.
    ///
    /// # Errors
    /// Returns the errors of [`Self::check_own`], and an error for a link and for a file with several names, of which
    /// one may be the host's.
    pub fn set_mode(&self, found: &Found, mode: u32) -> io::Result<()> {
        self.check_own(found)?;
        if found.has_other_names() {
            return Err(NotOwn::OtherNames.into());
        }
        found.set_mode(mode)
    }

    /// Covers `target` by a file with these bytes, with a mount that ends with the container. No file system is
    /// changed. The new file is read-only and has the mode and owner of `target`.
    ///
    /// # Errors
    /// Returns an error if the mount of the root is shared with the host, if the kernel refuses the label of
    /// [`Self::with_label`], without the privilege to mount, and before Linux 5.2.
    pub fn cover(&self, target: &OwnFile, bytes: &[u8]) -> io::Result<()> {
        super::cover::cover(
            self.root.as_fd(),
            target.as_fd(),
            bytes,
            target.permissions(),
            self.label.as_deref(),
        )
    }

    /// Mounts the socket at `host`, a path of the host, at `path`, with a mount that ends with the container. A file
    /// and directories for it are made where they are missing, unless they would be in the root and `read_only` is set.
    ///
    /// # Errors
    /// Returns `ReadOnlyFilesystem` if the file is missing and must not be made, an error if there is no socket or the
    /// container has something else at `path`, and the errors of [`Self::cover`].
    pub fn mount_socket(&self, host: &Path, path: &Path, read_only: bool) -> io::Result<()> {
        let existing = || path.ancestors().find_map(|path| self.directory(path).ok());
        if read_only && self.find(path).is_err() && existing().is_none_or(|there| self.check_image(&there).is_ok()) {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        let (directory, name) = self.make_parent(path)?;
        directory.make_file(name)?;
        let target = directory.find(name)?;
        if target.kind() != FileType::File {
            return Err(io::Error::other("the container has something else there"));
        }
        self.check_own(&target)?;
        super::socket::mount(host, target.as_fd())
    }

    /// The file of these names below the container's own /proc.
    ///
    /// # Errors
    /// As [`ContainerProcFile::find`].
    pub fn file_in_proc(&self, names: &[&str]) -> io::Result<ContainerProcFile> {
        let root = self.directory(Path::new("/"))?;
        ContainerProcFile::find(root, names)
    }

    /// Covers a file of the container's /proc.
    ///
    /// # Errors
    /// Returns the errors of [`Self::cover`].
    pub fn cover_in_proc(&self, target: &ContainerProcFile, bytes: &[u8], permissions: Permissions) -> io::Result<()> {
        let label = self.label.as_deref();
        super::cover::cover(self.root.as_fd(), target.as_fd(), bytes, permissions, label)
    }

    /// Finds the file at `path` without opening it (`O_PATH`). Repeats this if something was renamed meanwhile.
    fn resolve(&self, path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..TRIES {
            match openat2(self.root.as_fd(), path, flags, rustix::fs::Mode::empty(), inside) {
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                // The kernel or a filter of system calls does not support this call.
                Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => return self.walk(path),
                // Called directly, because pathrs makes eight more system calls to describe an error.
                found => return Ok(found?),
            }
        }
        Err(Errno::EAGAIN.into())
    }

    /// [`Self::resolve`] by pathrs' walk.
    fn walk(&self, path: &Path) -> io::Result<OwnedFd> {
        let mut last = io::Error::from(Errno::EAGAIN);
        for _ in 0..TRIES {
            match self.root.resolve(path) {
                Ok(found) => return Ok(found.into()),
                Err(e) => {
                    last = match e.kind() {
                        ErrorKind::OsError(Some(errno)) => io::Error::from_raw_os_error(errno),
                        // The path changed during the walk, for which the kernel returns EAGAIN.
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

/// Splits the last name off. Refuses a path without a name at its end, or with `..`.
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
