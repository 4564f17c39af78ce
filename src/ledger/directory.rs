//! The ledger's directory, held open. All files of the ledger are reached from this one handle by a single name, so
//! that nothing that is done to paths above it can lead a write elsewhere.

use crate::error::{Context, Error, Result};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RawMode, Stat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// A directory that is open, and the path by which messages name it.
#[derive(Debug)]
pub(super) struct LedgerDirectory {
    fd: OwnedFd,
    path: PathBuf,
}

/// As many links as the kernel follows in a path (path_resolution(7)).
const MOST_LINKS: u32 = 40;

const AS_PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl LedgerDirectory {
    /// The directory `ledger` in `state_dir`, where both are made if `make` says so; `None` where one of them is
    /// missing and is not to be made.
    ///
    /// # Errors
    /// Returns an error if another user could replace or write the ledger or a directory on the way to it: that user
    /// could promise a share twice, or have root write files elsewhere.
    pub(super) fn ledger(state_dir: &Path, make: bool) -> Result<Option<Self>> {
        let Some(state) = Self::state(state_dir, make)? else {
            return Ok(None);
        };
        let path = state.path.join("ledger");
        if make {
            unless(Errno::EXIST, fs::mkdirat(&state.fd, "ledger", Mode::RWXU))
                .about(path.display(), "cannot be made")?;
        }
        let found = unless(Errno::NOENT, fs::openat(&state.fd, "ledger", AS_PATH, Mode::empty()));
        let Some(fd) = found.about(path.display(), "cannot be opened")? else {
            return Ok(None);
        };
        let status = fs::fstat(&fd).about(path.display(), "cannot be read")?;
        let me = rustix::process::geteuid();
        if status.st_uid == 0 && !me.is_root() {
            return Err(Error::failed(path.display(), "belongs to root").hint("run this as root"));
        }
        if !is_directory(&status) || status.st_uid != me.as_raw() {
            let error = Error::failed(path.display(), "is not a directory of the user who runs this");
            return Err(error.hint("another program made it; remove it when no container holds a share"));
        }
        if status.st_mode & 0o077 != 0 {
            let mode = status.st_mode & 0o7777;
            let what = format!("has mode {mode:04o}, and others must not be able to enter it");
            let hint = format!("run: chmod 0700 {}", path.display());
            return Err(Error::failed(path.display(), what).hint(hint));
        }
        // What was checked is what is opened: by the handle, and not by its name again.
        let found = Self { fd, path };
        let fd = found.again()?;
        Ok(Some(Self { fd, ..found }))
    }

    /// Follows `path` from the root directory. Each directory on the way is checked, and so is each link.
    fn state(path: &Path, make: bool) -> Result<Option<Self>> {
        let path = std::path::absolute(path).about(path.display(), "cannot be named")?;
        let open_root = || fs::open("/", AS_PATH | OFlags::DIRECTORY, Mode::empty()).about("/", "cannot be opened");
        let mut at = open_root()?;
        let mut shown = PathBuf::from("/");
        let mut links = 0;
        let mut rest: VecDeque<OsString> = names(&path).collect();
        check(&at, &shown)?;
        while let Some(name) = rest.pop_front() {
            let here = shown.join(&name);
            let open = || fs::openat(&at, &name, AS_PATH, Mode::empty());
            let found = match open() {
                Err(Errno::NOENT) if !make => return Ok(None),
                Err(Errno::NOENT) => {
                    // 0755: files for everybody lie beside the ledger.
                    let made = fs::mkdirat(&at, &name, Mode::from_raw_mode(0o755));
                    unless(Errno::EXIST, made).about(here.display(), "cannot be made")?;
                    open()
                }
                found => found,
            };
            let found = found.about(here.display(), "cannot be opened")?;
            let status = check(&found, &here)?;
            if FileType::from_raw_mode(status.st_mode) == FileType::Symlink {
                links += 1;
                if links > MOST_LINKS {
                    return Err(Error::failed(path.display(), "has too many symbolic links"));
                }
                let target = fs::readlinkat(&found, "", Vec::new()).about(here.display(), "cannot be read")?;
                let target = PathBuf::from(OsString::from(os(target.as_bytes())));
                if target.is_absolute() {
                    (at, shown) = (open_root()?, PathBuf::from("/"));
                }
                for name in names(&target).collect::<Vec<_>>().into_iter().rev() {
                    rest.push_front(name);
                }
                continue;
            }
            if !is_directory(&status) {
                return Err(Error::failed(here.display(), "is not a directory"));
            }
            (at, shown) = (found, here);
        }
        Ok(Some(Self { fd: at, path }))
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
        // NONBLOCK: to open a FIFO would wait for its other end.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)
            .about(self.path(name).display(), "cannot be opened")?;
        self.check_file(name, &file)?;
        Ok(file)
    }

    /// Refuses what this ledger cannot have made under `name`: another kind of file, one of another user, and one that
    /// has a second name elsewhere. Returns what is known of it.
    fn check_file(&self, name: &str, file: &OwnedFd) -> Result<Stat> {
        let about = self.path(name);
        let status = fs::fstat(file).about(about.display(), "cannot be read")?;
        let wrong = if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            "is not a regular file"
        } else if status.st_uid != rustix::process::geteuid().as_raw() {
            "belongs to another user"
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
        fs::openat(&self.fd, ".", flags, Mode::empty()).about(self.path.display(), "cannot be opened")
    }

    /// Whether `file` is what `name` leads to.
    pub(super) fn is(&self, name: &str, file: &OwnedFd) -> Result<bool> {
        let about = self.path(name);
        let open = fs::fstat(file).about(about.display(), "cannot be read")?;
        let named = unless(Errno::NOENT, fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW));
        let named = named.about(about.display(), "cannot be read")?;
        Ok(named.is_some_and(|named| (named.st_dev, named.st_ino) == (open.st_dev, open.st_ino)))
    }

    /// The content of `name`, at most `most` bytes of it; `None` if the file does not exist.
    pub(super) fn read(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>> {
        let about = self.path(name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = unless(Errno::NOENT, fs::openat(&self.fd, name, flags, Mode::empty()));
        let Some(file) = file.about(about.display(), "cannot be read")? else {
            return Ok(None);
        };
        let status = self.check_file(name, &file)?;
        let size = usize::try_from(status.st_size).unwrap_or(0);
        // One byte more than there is: the end is seen without a second buffer.
        let mut bytes = Vec::with_capacity(size.min(usize::try_from(most).unwrap_or(size)) + 1);
        File::from(file)
            .take(most)
            .read_to_end(&mut bytes)
            .about(about.display(), "cannot be read")?;
        Ok(Some(bytes))
    }

    /// Puts a file with this text in the place of `name`: it is written as `new` and then renamed, so that a reader
    /// of `name` finds the old text or the new one. The caller holds the lock.
    ///
    /// What has the name `new` already is removed and not opened: a process that was killed left it, or it is a link, a
    /// FIFO or a file with a second name that another program put there.
    pub(super) fn replace(&self, name: &str, new: &str, text: &str) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let about = self.path(new);
        let open = || fs::openat(&self.fd, new, flags, Mode::RUSR | Mode::WUSR);
        let file = match open() {
            Err(Errno::EXIST) => {
                self.remove(new)?;
                open()
            }
            file => file,
        };
        let file = file.about(about.display(), "cannot be created")?;
        // A umask may have taken away permissions that its owner needs.
        fs::fchmod(&file, Mode::RUSR | Mode::WUSR).about(about.display(), "cannot be created")?;
        File::from(file)
            .write_all(text.as_bytes())
            .about(about.display(), "cannot be written")?;
        fs::renameat(&self.fd, new, &self.fd, name).about(self.path(name).display(), "cannot be replaced")
    }

    /// Removes `name`, if it exists.
    pub(super) fn remove(&self, name: &str) -> Result<()> {
        let removed = unless(Errno::NOENT, fs::unlinkat(&self.fd, name, AtFlags::empty()));
        removed.map(drop).about(self.path(name).display(), "cannot be removed")
    }

    /// All names in it.
    pub(super) fn names(&self) -> Result<Vec<OsString>> {
        let about = self.path.display();
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.fd).about(&about, "cannot be listed")? {
            let entry = entry.about(&about, "cannot be listed")?;
            let name = os(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }
}

/// `None` for the error `expected`.
fn unless<T>(expected: Errno, result: rustix::io::Result<T>) -> rustix::io::Result<Option<T>> {
    match result {
        Err(error) if error == expected => Ok(None),
        result => result.map(Some),
    }
}

fn os(bytes: &[u8]) -> &OsStr {
    use std::os::unix::ffi::OsStrExt;
    OsStr::from_bytes(bytes)
}

fn names(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

fn is_directory(status: &Stat) -> bool {
    FileType::from_raw_mode(status.st_mode) == FileType::Directory
}

/// Refuses a directory or link that a user other than root and the one who runs this could change, as its owner or
/// because of its mode. In a directory with the sticky bit, no user can replace the files of another.
fn check(found: &OwnedFd, path: &Path) -> Result<Stat> {
    const STICKY: RawMode = 0o1000;
    let status = fs::fstat(found).about(path.display(), "cannot be read")?;
    let me = rustix::process::geteuid().as_raw();
    if status.st_uid != 0 && status.st_uid != me {
        let what = format!("belongs to user {}, who could replace the ledger", status.st_uid);
        return Err(Error::failed(path.display(), what).hint("keep the state in a directory that belongs to root"));
    }
    if is_directory(&status) && status.st_mode & 0o022 != 0 && status.st_mode & STICKY == 0 {
        let mode = status.st_mode & 0o7777;
        let what = format!("has mode {mode:04o}, so others could replace the ledger");
        return Err(Error::failed(path.display(), what).hint(format!("run: chmod go-w {}", path.display())));
    }
    Ok(status)
}
