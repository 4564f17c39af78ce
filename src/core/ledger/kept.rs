//! What survives a reboot: the reservations of pods and resource claims. The kubelet gives a pod the same device again
//! after a reboot and asks nobody, so another holder must not get it meanwhile.
//!
//! The ledger itself ends with the machine, because processes do. Reservations are written a second time, in the form
//! of books, into a directory that does not. The first program that locks the ledger after a boot reads them.

use super::book::Book;
use super::claim::{Claim, ClaimState};
use super::directory::LedgerDirectory;
use super::error::{LedgerError, LedgerResult};
use super::holder::Holder;
use super::record;
use super::store::{Books, Ledger, Locked, NEW};
use crate::error::{Error, Result};
use crate::root::Missing;
use crate::types::{GpuUuid, KEPT_DIR, STATE_DIR};
use std::path::{Path, PathBuf};

/// The file of the ledger that says that what was kept has been read since the boot.
const READ: &str = "kept-was-read";

/// What is appended to the name of a damaged file when it is set aside.
const ASIDE: &str = ".damaged";

/// The directory for what outlives a boot, of a node whose ledger is in `state_dir`.
pub fn kept_dir(state_dir: &Path) -> PathBuf {
    match state_dir == Path::new(STATE_DIR) {
        true => PathBuf::from(KEPT_DIR),
        // Another ledger, such as that of a test, has reservations of its own.
        false => state_dir.join("kept"),
    }
}

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
    /// Adds to the ledger what was kept of it, once in a boot. The caller holds the lock.
    ///
    /// What cannot be read is left out: the plugin of the kubelet reserves again what a pod has, and
    /// [`Locked::keep`] sets the damaged file aside.
    pub(super) fn restore(&self) -> LedgerResult<()> {
        if self.directory().open(READ)?.is_some() {
            return Ok(());
        }
        if let Some(kept) = self.kept(Missing::Leave)? {
            for old in kept.books()?.books {
                let mut book = match self.book(&old.gpu) {
                    Ok(book) => book,
                    // It is refused by everybody who needs it.
                    Err(_) => continue,
                };
                for claim in old.claims {
                    book.claims.push(claim);
                    if !book.is_sound() {
                        // Somebody has taken it since: a program that did not know that it was kept.
                        book.claims.pop();
                    }
                }
                self.write(&book)?;
            }
        }
        drop(self.directory().create_anew(READ)?);
        Ok(())
    }

    /// The reservations that are kept, as a ledger that nobody locks: the lock of this one serves both.
    fn kept(&self, missing: Missing) -> LedgerResult<Option<Self>> {
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
        let ledger = self.ledger();
        let Books { books, .. } = ledger.books()?;
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
            books: old, damaged, ..
        } = kept.books()?;
        let is_over = |old: &&Book| reserved.iter().all(|book| book.gpu != old.gpu);
        let aside = damaged.iter().filter_map(|damaged| damaged.gpu.as_ref());
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

    /// Keeps the reservations that the books `new` have and `old` have not, before the ledger has them: one that cannot
    /// be kept is not made. Returns the books as they were of those GPUs, for [`Locked::keep_again`].
    ///
    /// # Errors
    /// Returns an error if one cannot be written. What was kept before is kept then.
    pub(super) fn keep_first<'b>(&self, old: &'b [Book], new: &[Book]) -> LedgerResult<Vec<&'b Book>> {
        let has_more = |(old, new): &(&Book, &Book)| {
            let (before, after) = (reservations(old), reservations(new));
            after.claims.iter().any(|claim| !before.claims.contains(claim))
        };
        let more: Vec<(&Book, &Book)> = old.iter().zip(new).filter(has_more).collect();
        if more.is_empty() {
            return Ok(Vec::new());
        }
        let kept = self.ledger().kept(Missing::Make)?;
        let kept =
            kept.ok_or_else(|| Error::failed(self.ledger().kept_in().display(), "was removed while it was created"))?;
        let mut written = Vec::new();
        for (old, new) in more {
            if let Err(error) = kept.write_to_disk(&reservations(new)) {
                self.keep_again(&written);
                return Err(error.into());
            }
            written.push(old);
        }
        Ok(written)
    }

    /// Keeps again what `books` have, because what was kept for a change is not made. Where that fails, more is kept
    /// than is reserved, until [`Locked::keep`] or the kubelet's plugin sees that after a reboot.
    pub(super) fn keep_again(&self, books: &[&Book]) {
        let Ok(Some(kept)) = self.ledger().kept(Missing::Leave) else {
            return;
        };
        for book in books {
            let before = reservations(book);
            let _ = match before.is_empty() {
                true => kept.write(&before),
                false => kept.write_to_disk(&before).map_err(Into::into),
            };
        }
    }
}

impl Ledger {
    fn set_aside(&self, gpu: &GpuUuid) -> Result<()> {
        let name = Self::name_of(gpu);
        self.directory().rename(&name, &format!("{name}{ASIDE}"))
    }

    /// Writes `book` so that it survives the loss of power.
    fn write_to_disk(&self, book: &Book) -> Result<()> {
        self.directory()
            .replace_on_disk(&Self::name_of(&book.gpu), NEW, &record::encode(book))
    }
}

/// What is reserved for pods and resource claims in `book`, as if no container used it: none does after a reboot.
fn reservations(book: &Book) -> Book {
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
