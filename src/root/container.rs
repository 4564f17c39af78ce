//! The root directory of a container that is being made.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fstat};
use pathrs::Root;
use pathrs::error::ErrorKind;

use super::mount::Mount;
use super::{Directory, Found, Kind};

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
/// Errors are plain [`io::Error`]s: the caller knows which object the work was about.
#[derive(Debug)]
pub struct ContainerRoot {
    root: Root,
    /// What was mounted in the root, by its path in it, and whether it is a part of the host.
    mounts: Vec<(PathBuf, bool)>,
    /// The SELinux context of what is mounted for the container.
    label: Option<String>,
}

impl ContainerRoot {
    /// Takes the directory that `path` leads to on the host, from `from` if it is relative. `path` is the engine's
    /// word, not the image's: it is followed as any path is.
    pub fn open(from: &Directory, path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Self::from_fd(openat(from, path, flags, Mode::empty())?))
    }

    /// Takes an open directory (`O_PATH` is enough).
    pub fn from_fd(directory: OwnedFd) -> Self {
        ContainerRoot {
            root: Root::from_fd(directory),
            mounts: Vec::new(),
            label: None,
        }
    }

    /// Tells what the runtime mounted in the root: where, and whether it is the host's (a bind mount).
    #[must_use]
    pub fn with_mounts(mut self, mounts: impl IntoIterator<Item = (PathBuf, bool)>) -> Self {
        self.mounts = mounts.into_iter().collect();
        self
    }

    /// Tells the SELinux context of what is mounted for the container, where the host has SELinux.
    #[must_use]
    pub fn with_label(mut self, label: Option<String>) -> Self {
        self.label = label;
        self
    }

    /// Refuses a place that is not the container's own: something of the host's that is bound into the root, to which
    /// the user, or a link of the image, gave a name that is ours to write. A file system that was made for the
    /// container is its own.
    ///
    /// # Errors
    /// `ReadOnlyFilesystem`: for us it is.
    pub fn check_own(&self, place: impl AsFd) -> io::Result<()> {
        let here = Mount::of(place.as_fd())?;
        if here == Mount::of(self.root.as_fd())? {
            return Ok(());
        }
        // Seldom come to: an image's own directories are on the root's mount. Compared as mounts and not by their paths,
        // since a link of the image may be in the way.
        let is_here = |path: &Path| {
            let mount = self.resolve(path).and_then(|found| Mount::of(found.as_fd()));
            mount.is_ok_and(|mount| mount == here)
        };
        let (mut own, mut bound) = (false, false);
        for (_, bind) in self.mounts.iter().filter(|(path, _)| is_here(path)) {
            own |= !bind;
            bound |= bind;
        }
        if own && !bound {
            return Ok(());
        }
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    /// Whether `other` is the same directory on the same file system, maybe by another mount.
    pub fn is_same_as(&self, other: &Self) -> io::Result<bool> {
        let (a, b) = (fstat(self.root.as_fd())?, fstat(other.root.as_fd())?);
        Ok((a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
    }

    /// The file system (`st_dev`) that the root directory itself is on.
    pub fn device(&self) -> io::Result<u64> {
        Ok(fstat(self.root.as_fd())?.st_dev)
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

    /// As [`Self::directory`], but what is missing of `path` is made, with mode 0755 less the process's umask. `path`
    /// must be absolute and in normal form.
    ///
    /// # Errors
    /// As [`Self::directory`] and [`Self::check_own`].
    pub fn make_directory(&self, path: &Path) -> io::Result<Directory> {
        match self.directory(path) {
            Ok(found) => self.check_own(&found).map(|()| found),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let (parent, name) = split(path)?;
                self.make_directory(parent)?.make_directory(name)
            }
            found => found,
        }
    }

    /// The directory that holds `path`'s last name, made if need be, and that name. `path` must be absolute and in
    /// normal form: no `.` or `..`, and not the root itself.
    pub fn make_parent<'p>(&self, path: &'p Path) -> io::Result<(Directory, &'p OsStr)> {
        let (parent, name) = split(path)?;
        Ok((self.make_directory(parent)?, name))
    }

    /// The content of the regular file at `path`, links in the way followed inside the root, a link at its end too.
    ///
    /// # Errors
    /// `NotFound`; `FileTooLarge` beyond `limit` bytes; `InvalidInput` for anything but a regular file. Nothing but a
    /// regular file is ever opened: opening a device can be an act, and opening a FIFO can wait for ever.
    pub fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        self.find(path)?.read(limit)
    }

    /// What `path` leads to, held but not opened. Links in the way are followed inside the root, a link at its end too.
    ///
    /// # Errors
    /// `NotFound` if there is nothing, and what the kernel says of a path that loops or climbs through a file.
    pub fn find(&self, path: &Path) -> io::Result<Found> {
        Found::from_fd(self.resolve(path)?)
    }

    /// Lays a file of these bytes and this mode over the regular file `target` of this container, without a change to
    /// any file system: by a mount that goes when the container goes. It can be read and not written.
    ///
    /// # Errors
    /// `InvalidInput` if `target` is no regular file, or the kernel does not take the label of [`Self::with_label`]; without
    /// the right to mount; before Linux 5.2.
    pub fn cover(&self, target: &Found, bytes: &[u8], mode: u32) -> io::Result<()> {
        super::cover::cover(self.root.as_fd(), target, bytes, mode, self.label.as_deref())
    }

    /// Finds what `path` leads to, without opening it (`O_PATH`), until nobody moves it meanwhile.
    fn resolve(&self, path: &Path) -> io::Result<OwnedFd> {
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
