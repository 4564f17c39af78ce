//! The ledger on disk.

pub(in crate::ledger) mod kept;

use super::book::Book;
use super::book::record::{self, FORMAT, Unreadable};
use super::calendar::{BEGUN_FILE, NearTimes, begun_text, parse_begun, remembered};
use super::claim::Claim;
use super::directory::{LedgerDirectory, kept_dir};
use super::error::{LedgerError, LedgerResult};
use super::events::Recorder;
use super::lock;
use super::out_of_service::OutOfService;
use crate::error::{Error, Result, line};
use crate::root::Missing;
use crate::types::{DeviceKey, GpuUuid};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

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
pub struct Ledger {
    directory: LedgerDirectory,
    state_dir: PathBuf,
    /// The directory in which reservations survive a reboot.
    kept_in: PathBuf,
}

/// The ledger while no other process can change it.
#[derive(Debug)]
pub struct Locked<'a> {
    ledger: &'a Ledger,
    /// The GPUs of which the ledger has not yet what was kept over the last boot, and why.
    pending: Vec<(GpuUuid, Error)>,
    /// Where changes are recorded; `None` if nobody wants a history.
    pub(super) recorder: Option<Recorder>,
    _lock: lock::Lock,
}

/// Every book, sorted by GPU. A book that cannot be read does not hide the others.
#[derive(Debug, Default)]
pub struct Books {
    /// The books that can be read.
    pub books: Vec<Book>,
    /// The others.
    pub damaged: Vec<DamagedBook>,
    /// The devices of which nothing new is claimed.
    pub out_of_service: OutOfService,
    /// What is reserved now or soon, also of GPUs without a book.
    pub times: NearTimes,
}

impl Books {
    /// Every claim in the books that can be read, by GPU and age.
    pub fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.books.iter().flat_map(|book| &book.claims)
    }

    /// What is wrong with the other books.
    pub fn errors(&self) -> impl Iterator<Item = &Error> {
        self.damaged.iter().map(|book| &book.error)
    }
}

/// A book that cannot be read, so that it is not known what is held of its GPU.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct DamagedBook {
    /// The GPU; `None` where the file's name does not say which GPU it is about, so that it may be any.
    pub gpu: Option<GpuUuid>,
    /// What is wrong with it.
    #[source]
    pub error: Error,
}

impl DamagedBook {
    /// Whether it may have claims on `gpu` or on its MIG devices.
    pub fn may_be_of(&self, gpu: &GpuUuid) -> bool {
        self.gpu.as_ref().is_none_or(|of| of == gpu)
    }
}

/// A larger book was not written by tranche: the largest device has a few thousand shares.
const MOST_BYTES: u64 = 16 << 20;

/// What follows the GPU's UUID in the name of its book.
const SUFFIX: &str = ".claims";

/// The name of a new file until it is renamed; `new-1` and so on are the others of one change. The names are always the
/// same, because the lock admits one writer at a time, which first removes the file of a writer that was killed.
pub(super) const NEW: &str = "new";

/// Whether a file of this name is one that has not got its own name yet.
fn is_unfinished(name: &str) -> bool {
    let number = name.strip_prefix(NEW);
    number.is_some_and(|number| number.is_empty() || number.strip_prefix('-').is_some_and(|n| n.parse::<u32>().is_ok()))
}

impl Ledger {
    /// The ledger in `state_dir`, created if it is missing. What was kept of it over a reboot may not be in it yet.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be created, or if another user could replace or write it.
    pub fn open(state_dir: &Path) -> LedgerResult<Self> {
        match LedgerDirectory::ledger(state_dir, Missing::Make)? {
            Some(directory) => Ok(Self::at(directory, state_dir)),
            None => Err(Error::failed(state_dir.display(), "was removed while it was created").into()),
        }
    }

    /// The ledger in `state_dir`; `None` if it does not exist, so that nothing is held. What was kept of it over a
    /// reboot is read before.
    ///
    /// # Errors
    /// As [`Ledger::open`].
    pub fn existing(state_dir: &Path) -> LedgerResult<Option<Self>> {
        let existing = LedgerDirectory::ledger(state_dir, Missing::Leave)?.map(|found| Self::at(found, state_dir));
        if !kept::is_pending(existing.as_ref(), state_dir) {
            return Ok(existing);
        }
        Self::restored(state_dir).map(Some)
    }

    /// As [`Ledger::open`], with what was kept of it over a reboot.
    ///
    /// # Errors
    /// As [`Ledger::open`] and, the first time after a reboot, [`Ledger::lock`].
    pub fn restored(state_dir: &Path) -> LedgerResult<Self> {
        let ledger = Self::open(state_dir)?;
        if kept::is_pending(Some(&ledger), state_dir) {
            drop(ledger.lock()?);
        }
        Ok(ledger)
    }

    pub(super) fn at(directory: LedgerDirectory, state_dir: &Path) -> Self {
        Self {
            directory,
            state_dir: state_dir.to_owned(),
            kept_in: kept_dir(state_dir),
        }
    }

    pub(super) fn kept_in(&self) -> &Path {
        &self.kept_in
    }

    /// Keeps other processes from changing anything until the result is dropped.
    ///
    /// # Errors
    /// Returns an error if the lock cannot be made, or if another process holds it for too long.
    pub fn lock(&self) -> LedgerResult<Locked<'_>> {
        let lock = lock::take(&self.directory, lock::FILE, lock::PATIENCE)?;
        let pending = self.restore()?;
        Ok(Locked {
            ledger: self,
            pending,
            recorder: None,
            _lock: lock,
        })
    }

    pub(super) fn directory(&self) -> &LedgerDirectory {
        &self.directory
    }

    /// An error about the file `name` of the ledger.
    pub(super) fn failed(&self, name: &str, what: &str) -> Error {
        Error::failed(self.directory.path(name).display(), what)
    }

    /// Every book, each as it was at one moment. Needs no lock, since a book is replaced in one step, and works on a
    /// read-only disk too. A GPU of which something was kept over the last boot and cannot be read has a damaged book.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be listed.
    pub fn books(&self) -> LedgerResult<Books> {
        let mut all = self.own_books()?;
        all.damaged.extend(self.not_restored()?);
        all.damaged.sort_unstable_by_key(|damaged| line(&damaged.error));
        Ok(all)
    }

    /// The books of this directory alone. What else keeps devices from being given is read once for all of them.
    pub(super) fn own_books(&self) -> LedgerResult<Books> {
        self.books_within(Books {
            out_of_service: self.out_of_service(),
            times: self.times(None)?,
            ..Books::default()
        })
    }

    /// The books of this directory, as files alone: nothing is given by them.
    pub(super) fn bare_books(&self) -> LedgerResult<Books> {
        self.books_within(Books::default())
    }

    /// Adds the books of this directory to `all`, which has none, and gives each what `all` has for all devices.
    fn books_within(&self, mut all: Books) -> LedgerResult<Books> {
        for name in self.directory.names()? {
            match self.book_of(&name, &all) {
                None => {}
                Some(Ok(book)) => all.books.push(book),
                Some(Err(LedgerError::Damaged(book))) => all.damaged.push(book),
                Some(Err(other)) => all.damaged.push(DamagedBook {
                    gpu: gpu_of(&name.to_string_lossy()),
                    error: other.into(),
                }),
            }
        }
        // Oldest first, for people: a claim that is taken again moves to the end of its book.
        all.books
            .iter_mut()
            .for_each(|book| book.claims.sort_by_key(|claim| claim.since));
        all.books.sort_unstable_by(|a, b| a.gpu.cmp(&b.gpu));
        Ok(all)
    }

    /// The book of `gpu`, empty if it does not exist. As [`Ledger::books`].
    ///
    /// # Errors
    /// Returns an error if it cannot be read.
    pub fn book(&self, gpu: &GpuUuid) -> LedgerResult<Book> {
        self.read_now(gpu, |text| record::decode(&text))
    }

    /// The devices of which nothing new is claimed.
    pub fn out_of_service(&self) -> OutOfService {
        OutOfService::read(&self.state_dir)
    }

    /// The book in the file `name`, with what `all` has for all devices; `None` for a file that is not a book.
    fn book_of(&self, name: &OsStr, all: &Books) -> Option<LedgerResult<Book>> {
        let text = name.to_string_lossy();
        let gpu = text.strip_suffix(SUFFIX)?;
        Some(match gpu.parse() {
            Ok(gpu) => self.read_with(&gpu, |text| record::decode(&text)).map(|book| {
                let times = all.times.of_gpu(&gpu);
                book.without(all.out_of_service.clone()).with_times(times)
            }),
            Err(_) => Err(self.not_valid(&text, "has a name that is not that of a GPU")),
        })
    }

    fn of_later_format(&self, name: &str, format: u32) -> LedgerError {
        let what = format!("has format {format}, and this program writes {FORMAT}");
        let error = Error::failed(self.directory.path(name).display(), what);
        damaged(name, error.hint("a newer tranche wrote it; use that one"))
    }

    fn not_valid(&self, name: &str, what: impl std::fmt::Display) -> LedgerError {
        let error = Error::failed(self.directory.path(name).display(), what);
        damaged(
            name,
            error.hint("remove it when no container holds a share of this GPU"),
        )
    }

    /// The book of `gpu` as `read` reads it, with what keeps its devices from being given now.
    fn read_now(
        &self,
        gpu: &GpuUuid,
        read: impl FnOnce(String) -> std::result::Result<Book, Unreadable>,
    ) -> LedgerResult<Book> {
        let book = self.read_with(gpu, read)?.without(self.out_of_service());
        Ok(book.with_times(self.times(Some(gpu))?))
    }

    /// The book of `gpu` as `read` reads it, and no more than the file has.
    fn read_with(
        &self,
        gpu: &GpuUuid,
        read: impl FnOnce(String) -> std::result::Result<Book, Unreadable>,
    ) -> LedgerResult<Book> {
        let name = Self::name_of(gpu);
        let Some(bytes) = self.directory.read(&name, MOST_BYTES)? else {
            return Ok(Book::new(gpu.clone()));
        };
        let line = |line: usize| self.not_valid(&name, format_args!("line {line} is not valid in a ledger"));
        let text = String::from_utf8(bytes).map_err(|_| line(1))?;
        let book = read(text).map_err(|wrong| match wrong {
            Unreadable::Format(format) => self.of_later_format(&name, format),
            Unreadable::Damaged(at) => line(at),
        })?;
        if book.gpu != *gpu || !book.is_sound() {
            return Err(self.not_valid(&name, "holds claims that exclude one another or are of another GPU"));
        }
        Ok(book)
    }

    /// A book of `gpu` without claims.
    fn empty_book(&self, gpu: &GpuUuid) -> LedgerResult<Book> {
        let book = Book::new(gpu.clone()).without(self.out_of_service());
        Ok(book.with_times(self.times(Some(gpu))?))
    }

    /// What is reserved of `gpu`, or of all, now or soon.
    fn times(&self, gpu: Option<&GpuUuid>) -> LedgerResult<NearTimes> {
        let times = NearTimes::of(remembered::current(&self.state_dir), gpu, || self.begun());
        Ok(times?)
    }

    /// The reservations that their users have used since the boot.
    fn begun(&self) -> Result<BTreeSet<u32>> {
        let bytes = self.directory.read(BEGUN_FILE, MOST_BYTES)?;
        Ok(parse_begun(&bytes.unwrap_or_default()))
    }

    /// Records the reservations that are used by what is about to be written. A claim whose reservation is not known to
    /// be used could lose the rest of its time.
    pub(super) fn note_begun<'b>(&self, books: impl Iterator<Item = &'b Book>) -> LedgerResult<()> {
        let mut used = books.flat_map(Book::begun).peekable();
        if used.peek().is_none() {
            return Ok(());
        }
        let mut all = self.begun()?;
        let known = all.len();
        all.extend(used);
        if all.len() > known {
            let calendar = remembered::current(&self.state_dir).unwrap_or_default();
            all.retain(|number| calendar.times.iter().any(|time| time.id == *number));
            self.directory.replace(BEGUN_FILE, NEW, &begun_text(&all))?;
        }
        Ok(())
    }

    pub(super) fn write(&self, book: &Book) -> LedgerResult<()> {
        let name = Self::name_of(&book.gpu);
        if book.is_empty() {
            self.directory.remove(&name)?;
        } else {
            self.directory.replace(&name, NEW, &record::encode(book))?;
        }
        Ok(())
    }

    /// The name of the book of `gpu`.
    pub(super) fn name_of(gpu: &GpuUuid) -> String {
        format!("{gpu}{SUFFIX}")
    }
}

fn damaged(name: &str, error: Error) -> LedgerError {
    LedgerError::Damaged(DamagedBook {
        gpu: gpu_of(name),
        error,
    })
}

/// The GPU that the name of a book names; `None` if the name is not that of a book.
fn gpu_of(name: &str) -> Option<GpuUuid> {
    name.strip_suffix(SUFFIX)?.parse().ok()
}

impl Locked<'_> {
    /// A book of `gpu` without claims, for a GPU that has none on disk.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read.
    pub fn empty_book(&self, gpu: &GpuUuid) -> LedgerResult<Book> {
        self.ledger.empty_book(gpu)
    }

    pub(super) fn ledger(&self) -> &Ledger {
        self.ledger
    }

    /// Refuses a change of a GPU of which the ledger has not yet what was kept over the last boot.
    ///
    /// # Errors
    /// Returns why it has not.
    pub(super) fn check_restored(&self, gpu: &GpuUuid) -> LedgerResult<()> {
        match self.pending.iter().find(|(pending, _)| pending == gpu) {
            None => Ok(()),
            Some((_, why)) => {
                let what = "what was reserved of it before the last boot cannot be recorded";
                Err(Error::failed(gpu, what).hint(line(why)).into())
            }
        }
    }

    /// Changes the book of the GPU that `device` is, or is on. An error of `change` leaves the disk as it was.
    ///
    /// # Errors
    /// Returns the error of `change`, and why the book cannot be read or written.
    pub fn change<T>(
        &self,
        device: &DeviceKey,
        change: impl FnOnce(&mut Book) -> LedgerResult<(T, Change)>,
    ) -> LedgerResult<T> {
        self.change_read(device, |text| record::decode(&text), change)
    }

    /// As [`Locked::change`], for a change that needs few claims, and those by the rules of [`Book`] alone:
    /// `book.claims` has those that a rule has read.
    ///
    /// # Errors
    /// As [`Locked::change`].
    pub fn change_scanned<T>(
        &self,
        device: &DeviceKey,
        change: impl FnOnce(&mut Book) -> LedgerResult<(T, Change)>,
    ) -> LedgerResult<T> {
        self.change_read(device, record::scan, change)
    }

    fn change_read<T>(
        &self,
        device: &DeviceKey,
        read: impl FnOnce(String) -> std::result::Result<Book, Unreadable>,
        change: impl FnOnce(&mut Book) -> LedgerResult<(T, Change)>,
    ) -> LedgerResult<T> {
        self.check_restored(device.gpu())?;
        let mut book = self.ledger.read_now(device.gpu(), read)?;
        let mut before = self.to_record(&book);
        book.note_held();
        let (value, made) = change(&mut book)?;
        if made == Change::Made {
            self.ledger.note_begun(std::iter::once(&book))?;
            self.ledger.write(&book)?;
            if let Some(recorder) = &self.recorder {
                before.extend(book.as_they_were());
                recorder.note_change(&before, &book.claims);
            }
        }
        Ok(value)
    }

    /// The claims of `book`, if their changes are recorded.
    fn to_record(&self, book: &Book) -> Vec<Claim> {
        self.recorder.as_ref().map_or_else(Vec::new, |_| book.claims.clone())
    }

    /// Changes every book. Returns the errors of books that are damaged or cannot be written; the others are changed.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be listed.
    pub fn change_each(&self, mut change: impl FnMut(&mut Book) -> Change) -> LedgerResult<Vec<LedgerError>> {
        let all = self.ledger.books()?;
        let mut wrong: Vec<LedgerError> = all.damaged.into_iter().map(LedgerError::Damaged).collect();
        for mut book in all.books {
            let before = self.to_record(&book);
            book.note_held();
            if change(&mut book) == Change::Made {
                let noted = self.ledger.note_begun(std::iter::once(&book));
                let written = noted.and_then(|()| self.check_restored(&book.gpu));
                let written = written.and_then(|()| self.ledger.write(&book));
                if let (Ok(()), Some(recorder)) = (&written, &self.recorder) {
                    recorder.note_change(&before, &book.claims);
                }
                wrong.extend(written.err());
            }
        }
        Ok(wrong)
    }

    /// Removes the halves of books that a killed writer left; the next writer would write over them.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be listed, or if one cannot be removed.
    pub fn remove_unfinished(&self) -> LedgerResult<()> {
        for name in self.ledger.directory.names()? {
            match name.to_str() {
                Some(name) if is_unfinished(name) => self.ledger.directory.remove(name)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Parses a book, for fuzzing.
#[cfg(fuzzing)]
pub(crate) fn parse(text: &str) -> Option<Book> {
    record::decode(text).ok()
}

#[cfg(test)]
mod tests;
