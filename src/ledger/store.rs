//! The ledger on disk.

use super::book::{Book, FORMAT};
use super::claim::DeviceKey;
use crate::error::{Context, Error, Result};
use nix::fcntl::{Flock, FlockArg};
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Called before each step of a change. A test stops there, as `kill -9` would; everybody else passes.
pub trait Steps {
    /// Before `step`.
    ///
    /// # Errors
    /// To stop here.
    fn before(&self, step: &'static str) -> Result<()>;
}

/// Nobody stops.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSteps;

impl Steps for NoSteps {
    fn before(&self, _step: &'static str) -> Result<()> {
        Ok(())
    }
}

/// Whether a change changed anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Write the book.
    Made,
    /// Leave it as it is.
    None,
}

/// The ledger below a directory.
#[derive(Debug)]
pub struct Ledger<S: Steps = NoSteps> {
    dir: PathBuf,
    steps: S,
}

/// The ledger while nobody else changes it.
#[derive(Debug)]
pub struct Locked<'a, S: Steps = NoSteps> {
    ledger: &'a Ledger<S>,
    _lock: Flock<File>,
}

/// Every book that can be read, and a line for each that cannot: one that is damaged hides no other.
#[derive(Debug, Default)]
pub struct Books {
    /// The books, by device.
    pub books: Vec<Book>,
    /// What is wrong with the others.
    pub damaged: Vec<Error>,
}

/// A book larger than this was not written by us: the largest device has a few hundred shares.
const MOST_BYTES: u64 = 16 << 20;

/// Room for a book of ten claims and more, so that it is read at once.
const ROOM: usize = 16 << 10;

impl Ledger {
    /// The ledger in `state_dir`, made where it is missing.
    ///
    /// # Errors
    /// A directory that cannot be made, or that others can enter or own: a ledger that others can write binds nobody.
    pub fn open(state_dir: &Path) -> Result<Self> {
        Self::open_with(state_dir, NoSteps)
    }

    /// The ledger in `state_dir`; `None` where nobody has made one, and so nobody holds anything.
    ///
    /// # Errors
    /// As [`Ledger::open`].
    pub fn existing(state_dir: &Path) -> Result<Option<Self>> {
        let dir = state_dir.join("ledger");
        match std::fs::symlink_metadata(&dir) {
            Ok(meta) => Self::of(dir, &meta, NoSteps).map(Some),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::failed(dir.display(), "cannot be read").from_source(e)),
        }
    }
}

impl<S: Steps> Ledger<S> {
    /// As [`Ledger::open`], stopping at `steps`.
    ///
    /// # Errors
    /// As [`Ledger::open`].
    pub fn open_with(state_dir: &Path, steps: S) -> Result<Self> {
        let dir = state_dir.join("ledger");
        // 0755 above: status files for everybody lie beside the ledger.
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(state_dir)
            .about(state_dir.display(), "cannot be made")?;
        match DirBuilder::new().mode(0o700).create(&dir) {
            Ok(()) => {}
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::failed(dir.display(), "cannot be made").from_source(e)),
        }
        let meta = std::fs::symlink_metadata(&dir).about(dir.display(), "cannot be read")?;
        Self::of(dir, &meta, steps)
    }

    fn of(dir: PathBuf, meta: &Metadata, steps: S) -> Result<Self> {
        let me = nix::unistd::geteuid();
        if meta.is_dir() && meta.uid() == 0 && !me.is_root() {
            return Err(Error::failed(dir.display(), "may be entered by root alone").hint("run this as root"));
        }
        if !meta.is_dir() || meta.uid() != me.as_raw() || meta.mode() & 0o077 != 0 {
            return Err(
                Error::failed(dir.display(), "is not a directory that its owner alone may enter")
                    .hint("another program made it; remove it when no container holds a share"),
            );
        }
        Ok(Self { dir, steps })
    }

    /// Changes the book of `device` under the lock. What `change` returns as an error leaves the disk as it was.
    ///
    /// # Errors
    /// What `change` says; a book that is not ours or newer than this program; a disk that is full or read-only.
    pub fn change<T>(&self, device: &DeviceKey, change: impl FnOnce(&mut Book) -> Result<(T, Change)>) -> Result<T> {
        let locked = self.lock()?;
        let value = locked.change(device, change)?;
        self.steps.before("unlock")?;
        Ok(value)
    }

    /// Keeps everybody else out until the result is dropped: for a change that depends on more than one book.
    ///
    /// # Errors
    /// A lock that cannot be made or taken.
    pub fn lock(&self) -> Result<Locked<'_, S>> {
        self.steps.before("lock")?;
        let path = self.dir.join("lock");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .about(path.display(), "cannot be opened")?;
        Ok(Locked {
            ledger: self,
            _lock: flock(&path, file, FlockArg::LockExclusive)?,
        })
    }

    /// Every book, as it was at one moment. Works on a read-only disk too.
    ///
    /// # Errors
    /// A directory that cannot be listed, a lock that cannot be taken.
    pub fn books(&self) -> Result<Books> {
        let path = self.dir.join("lock");
        let _lock = match File::open(&path) {
            Ok(file) => Some(flock(&path, file, FlockArg::LockShared)?),
            // Nobody has changed anything yet.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(Error::failed(path.display(), "cannot be opened").from_source(e)),
        };
        self.read_all()
    }

    fn read_all(&self) -> Result<Books> {
        let mut all = Books::default();
        for entry in std::fs::read_dir(&self.dir).about(self.dir.display(), "cannot be listed")? {
            let name = entry.about(self.dir.display(), "cannot be listed")?.file_name();
            let Some(key) = name.to_str().and_then(|n| n.strip_suffix(".json")) else {
                continue;
            };
            match key.parse().and_then(|device| self.read(&device)) {
                Ok(book) => all.books.push(book),
                Err(error) => all.damaged.push(error),
            }
        }
        all.books.sort_by(|a, b| a.device.cmp(&b.device));
        all.damaged.sort_by_key(Error::to_string);
        Ok(all)
    }

    fn path(&self, device: &DeviceKey) -> PathBuf {
        self.dir.join(format!("{device}.json"))
    }

    fn read(&self, device: &DeviceKey) -> Result<Book> {
        let path = self.path(device);
        let mut text = String::with_capacity(ROOM);
        match File::open(&path) {
            Ok(file) => file
                .take(MOST_BYTES)
                .read_to_string(&mut text)
                .about(path.display(), "cannot be read")?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Book::new(device.clone())),
            Err(e) => return Err(Error::failed(path.display(), "cannot be read").from_source(e)),
        };
        parse(&path, device, &text)
    }

    fn write(&self, book: &Book) -> Result<()> {
        let path = self.path(&book.device);
        if book.claims.is_empty() {
            self.steps.before("remove")?;
            return match std::fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    Err(Error::failed(path.display(), "cannot be removed").from_source(e))
                }
                _ => Ok(()),
            };
        }
        let text = serde_json::to_vec(book).about(path.display(), "cannot be written")?;
        self.replace(&path, &text)
    }

    /// Puts a file with `text` in the place of `path`. The caller holds the lock.
    fn replace(&self, path: &Path, text: &[u8]) -> Result<()> {
        // One name for all: the lock lets one writer in, and what one that was killed left is written over.
        let new = self.dir.join("new");
        self.steps.before("create")?;
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)
            .about(new.display(), "cannot be made")?;
        file.set_permissions(Permissions::from_mode(0o600))
            .about(new.display(), "cannot be made")?;
        let half = text.len() / 2;
        self.steps.before("write the first half")?;
        file.write_all(&text[..half])
            .about(new.display(), "cannot be written")?;
        self.steps.before("write the second half")?;
        file.write_all(&text[half..])
            .about(new.display(), "cannot be written")?;
        self.steps.before("rename")?;
        std::fs::rename(&new, path).about(path.display(), "cannot be replaced")
    }
}

impl<S: Steps> Locked<'_, S> {
    /// As [`Ledger::change`].
    ///
    /// # Errors
    /// As [`Ledger::change`].
    pub fn change<T>(&self, device: &DeviceKey, change: impl FnOnce(&mut Book) -> Result<(T, Change)>) -> Result<T> {
        self.ledger.steps.before("read")?;
        let mut book = self.ledger.read(device)?;
        let (value, made) = change(&mut book)?;
        if made == Change::Made {
            self.ledger.write(&book)?;
        }
        Ok(value)
    }

    /// Changes every book. One that is damaged, or cannot be written, hides no other: what is wrong comes back.
    ///
    /// # Errors
    /// A directory that cannot be listed.
    pub fn change_each(&self, mut change: impl FnMut(&mut Book) -> Change) -> Result<Vec<Error>> {
        let all = self.ledger.read_all()?;
        let mut wrong = all.damaged;
        for mut book in all.books {
            if change(&mut book) == Change::Made {
                wrong.extend(self.ledger.write(&book).err());
            }
        }
        Ok(wrong)
    }

    /// As [`Ledger::books`].
    ///
    /// # Errors
    /// As [`Ledger::books`].
    pub fn books(&self) -> Result<Books> {
        self.ledger.read_all()
    }
}

fn flock(path: &Path, file: File, how: FlockArg) -> Result<Flock<File>> {
    Flock::lock(file, how).map_err(|(_, e)| Error::failed(path.display(), "cannot be locked").from_source(e))
}

pub(crate) fn parse(path: &Path, device: &DeviceKey, text: &str) -> Result<Book> {
    #[derive(serde::Deserialize)]
    struct Version {
        format: u32,
    }
    let damaged = |e: serde_json::Error| {
        Error::failed(path.display(), "is no ledger of ours")
            .from_source(e)
            .hint("remove it when no container holds a share of this device")
    };
    let of_another_format = |format| {
        Error::failed(
            path.display(),
            format!("has format {format}, and this program writes {FORMAT}"),
        )
        .hint("a newer tranche wrote it; use that one")
    };
    // The whole is read once, since every claim reads it. What another format says is asked when it is not as ours.
    let book: Book = match serde_json::from_str::<Book>(text) {
        Ok(book) if book.format == FORMAT => book,
        Ok(book) => return Err(of_another_format(book.format)),
        Err(error) => {
            return Err(match serde_json::from_str::<Version>(text) {
                Ok(version) if version.format != FORMAT => of_another_format(version.format),
                _ => damaged(error),
            });
        }
    };
    if book.device != *device || !book.is_sound() {
        return Err(Error::failed(path.display(), "holds what no ledger of ours holds")
            .hint("remove it when no container holds a share of this device"));
    }
    Ok(book)
}

#[cfg(test)]
mod tests;
