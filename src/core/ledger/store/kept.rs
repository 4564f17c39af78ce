//! What survives a reboot: the reservations of pods and resource claims. The kubelet gives a pod the same device again
//! after a reboot and asks nobody, so another holder must not get it meanwhile.
//!
//! The ledger itself ends with the machine, because processes do. Reservations are written a second time, in the form
//! of books, into a directory that does not. The first program that locks the ledger after a boot reads them.

use super::{Books, DamagedBook, Ledger, Locked, NEW};
use crate::error::{Error, Result};
use crate::ledger::book::Book;
use crate::ledger::book::record;
use crate::ledger::claim::{Claim, ClaimState};
use crate::ledger::directory::{LedgerDirectory, kept_dir};
use crate::ledger::error::{LedgerError, LedgerResult};
use crate::ledger::holder::Holder;
use crate::root::Missing;
use crate::types::GpuUuid;
use std::path::Path;

/// The file of the ledger that says that what was kept has been read since the boot.
const READ: &str = "kept-was-read";

/// What is appended to the name of a damaged file when it is set aside.
const ASIDE: &str = ".damaged";

/// Whether something was kept that `ledger`, which is in `state_dir`, does not have yet. Only the owner of what was
/// kept can say so.
pub(super) fn is_pending(ledger: Option<&Ledger>, state_dir: &Path) -> bool {
    let was_read = |ledger: &Ledger| matches!(ledger.directory().open(READ), Ok(Some(_)));
    !ledger.is_some_and(was_read)
        && matches!(
            LedgerDirectory::ledger(&kept_dir(state_dir), Missing::Leave),
            Ok(Some(_))
        )
}

impl Ledger {
    /// Adds to the ledger what was kept of it, once in a boot. The caller holds the lock. Returns the GPUs whose books
    /// cannot be read or written, with the reasons: nothing of them changes before they can, because what a pod has may
    /// not be given to another. The next caller tries again.
    pub(super) fn restore(&self) -> LedgerResult<Vec<(GpuUuid, Error)>> {
        let mut pending = Vec::new();
        if self.directory().open(READ)?.is_some() {
            return Ok(pending);
        }
        if let Some(kept) = self.kept(Missing::Leave)? {
            let Books { books, damaged, .. } = kept.bare_books()?;
            pending.extend(damaged.into_iter().filter_map(not_restored));
            for old in books {
                let mut book = match self.book(&old.gpu) {
                    Ok(book) => book,
                    Err(error) => {
                        pending.push((old.gpu, error.into()));
                        continue;
                    }
                };
                let before = book.claims.len();
                for claim in old.claims {
                    book.claims.push(claim);
                    if !book.is_sound() {
                        // Somebody has taken it since: a program that did not know that it was kept.
                        book.claims.pop();
                    }
                }
                if book.claims.len() > before
                    && let Err(error) = self.write(&book)
                {
                    pending.push((book.gpu, error.into()));
                }
            }
        }
        if pending.is_empty() {
            drop(self.directory().create_anew(READ)?);
        }
        Ok(pending)
    }

    /// What was kept and cannot be read, until the ledger has it.
    pub(super) fn not_restored(&self) -> LedgerResult<Vec<DamagedBook>> {
        if self.directory().open(READ)?.is_some() {
            return Ok(Vec::new());
        }
        let Some(kept) = self.kept(Missing::Leave)? else {
            return Ok(Vec::new());
        };
        let damaged = kept.bare_books()?.damaged.into_iter().filter_map(not_restored);
        Ok(damaged
            .map(|(gpu, error)| DamagedBook { gpu: Some(gpu), error })
            .collect())
    }

    /// The reservations that are kept, as a ledger that nobody locks: the lock of this one serves both.
    pub(in crate::ledger) fn kept(&self, missing: Missing) -> LedgerResult<Option<Self>> {
        let path = self.kept_in();
        Ok(LedgerDirectory::ledger(path, missing)?.map(|directory| Self::at(directory, path)))
    }
}

impl Locked<'_> {
    /// Keeps the reservations of pods over a reboot, as they are in the ledger now. Returns what was wrong with files
    /// of other GPUs than those that are `needed`: damaged ones, which are set aside, and those that cannot be written.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read, or what is kept of a GPU that is `needed` cannot be written.
    pub fn keep(&self, needed: impl Fn(&GpuUuid) -> bool) -> LedgerResult<Vec<Error>> {
        let Books { books, damaged, .. } = self.ledger().books()?;
        self.keep_books(books, &damaged, needed)
    }

    /// As [`Self::keep`], for a caller who has read the ledger since it took the lock: `books` are those that it has
    /// now, and `unknown` those that could not be read.
    ///
    /// # Errors
    /// As [`Self::keep`].
    pub fn keep_books(
        &self,
        mut books: Vec<Book>,
        unknown: &[DamagedBook],
        needed: impl Fn(&GpuUuid) -> bool,
    ) -> LedgerResult<Vec<Error>> {
        let ledger = self.ledger();
        // What is kept of a GPU stays as it is while the ledger does not know it.
        let is_known = |gpu: &GpuUuid| {
            self.check_restored(gpu).is_ok() && !unknown.iter().any(|book| book.gpu.as_ref() == Some(gpu))
        };
        books.retain(|book| is_known(&book.gpu));
        // As they are read: what was taken again is at the end of a book that was changed in memory.
        books
            .iter_mut()
            .for_each(|book| book.claims.sort_by_key(|claim| claim.since));
        let reserved: Vec<Book> = books.iter().map(reservations).filter(|book| !book.is_empty()).collect();
        let missing = if reserved.is_empty() {
            Missing::Leave
        } else {
            Missing::Make
        };
        let Some(kept) = ledger.kept(missing)? else {
            return Ok(Vec::new());
        };
        let Books {
            books: mut old,
            damaged,
            ..
        } = kept.bare_books()?;
        old.retain(|book| is_known(&book.gpu));
        let is_over = |old: &&Book| reserved.iter().all(|book| book.gpu != old.gpu);
        let aside = damaged.iter().filter_map(|damaged| damaged.gpu.as_ref());
        let aside = aside.filter(|gpu| is_known(gpu));
        let aside = aside.map(|gpu| (gpu, kept.set_aside(gpu).map_err(LedgerError::from)));
        let changed = reserved.iter().filter(|book| !old.contains(book));
        let changed = changed.map(|book| (&book.gpu, kept.write_to_disk(book).map_err(LedgerError::from)));
        let over = old.iter().filter(is_over);
        let over = over.map(|gone| (&gone.gpu, kept.write(&Book::new(gone.gpu.clone()))));
        let mut wrong: Vec<Error> = Vec::new();
        for (gpu, written) in aside.chain(changed).chain(over) {
            match written {
                Err(error) if needed(gpu) => return Err(error),
                written => wrong.extend(written.err().map(Error::from)),
            }
        }
        wrong.extend(damaged.into_iter().map(|damaged| damaged.error));
        Ok(wrong)
    }
}

/// What is said of a book that was kept and cannot be read after a boot. A file with another name than that of a book
/// says nothing of a GPU.
fn not_restored(damaged: DamagedBook) -> Option<(GpuUuid, Error)> {
    let hint = "remove it: the kubelet's plugin reserves again what its pods have of this GPU";
    Some((damaged.gpu?, damaged.error.hint(hint)))
}

impl Ledger {
    fn set_aside(&self, gpu: &GpuUuid) -> Result<()> {
        let name = Self::name_of(gpu);
        self.directory().rename(&name, &format!("{name}{ASIDE}"))
    }

    /// Writes `book` so that it survives the loss of power.
    pub(in crate::ledger) fn write_to_disk(&self, book: &Book) -> Result<()> {
        self.directory()
            .replace_on_disk(&Self::name_of(&book.gpu), NEW, &record::encode(book))
    }
}

/// What is reserved for pods and resource claims in `book`, as if no container used it: none does after a reboot.
pub(in crate::ledger) fn reservations(book: &Book) -> Book {
    let mut kept = Book::new(book.gpu.clone());
    let is_kept =
        |claim: &&Claim| !claim.once && !claim.joined && (claim.pod().is_some() || claim.resource_claim().is_some());
    kept.claims.extend(book.claims.iter().filter(is_kept).cloned());
    for claim in &mut kept.claims {
        let holder = claim.resource_claim().map_or(Holder::Person, Holder::ResourceClaim);
        (claim.holder, claim.process, claim.state) = (holder, None, ClaimState::Reserved);
    }
    kept
}

#[cfg(test)]
mod tests;
