//! A change of several files, of the ledger and of what is kept of it over a reboot: all of them, or none.
//!
//! What fails for lack of room is done first: each file is written under a temporary name. Giving the names takes no
//! room. A reservation is kept before the ledger has it, and one that ends leaves the ledger first: whatever happens in
//! between, nobody loses what was promised.

use super::book::Book;
use super::book::record;
use super::error::{LedgerError, LedgerResult};
use super::store::kept::reservations;
use super::store::{Ledger, Locked, NEW};
use crate::error::{Error, Result, line};
use crate::root::Missing;

/// One file, before and after a change.
struct Step<'a> {
    /// Where it is.
    place: Place<'a>,
    old: &'a Book,
    new: &'a Book,
    /// Under which name it is written.
    temporary: String,
}

/// The ledger, or what is kept of it.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// It ends with the machine.
    Ledger(&'a Ledger),
    /// It survives the loss of power.
    Kept(&'a Ledger),
}

impl<'a> Place<'a> {
    fn files(self) -> &'a Ledger {
        match self {
            Self::Ledger(files) | Self::Kept(files) => files,
        }
    }

    fn write(self, book: &Book) -> LedgerResult<()> {
        match self {
            Self::Kept(files) if !book.is_empty() => Ok(files.write_to_disk(book)?),
            Self::Ledger(files) | Self::Kept(files) => files.write(book),
        }
    }
}

impl<'a> Step<'a> {
    fn of((number, (place, old, new)): (usize, (Place<'a>, &'a Book, &'a Book))) -> Self {
        let temporary = match number {
            0 => NEW.to_owned(),
            _ => format!("{NEW}-{number}"),
        };
        Self {
            place,
            old,
            new,
            temporary,
        }
    }

    /// Writes the file under its temporary name. One without claims is removed in the end, which takes no room.
    fn prepare(&self) -> Result<()> {
        if self.new.is_empty() {
            return Ok(());
        }
        let directory = self.place.files().directory();
        let text = record::encode(self.new);
        match self.place {
            Place::Ledger(_) => directory.write(&self.temporary, &text),
            Place::Kept(_) => directory.write_to_disk(&self.temporary, &text),
        }
    }

    fn put_in_place(&self) -> Result<()> {
        let directory = self.place.files().directory();
        let name = Ledger::name_of(&self.new.gpu);
        match self.new.is_empty() {
            true => directory.remove(&name),
            false => directory.rename(&self.temporary, &name),
        }
    }

    /// Waits until the name is on the disk, where that matters.
    fn sync(&self) -> Result<()> {
        match self.place {
            Place::Ledger(_) => Ok(()),
            Place::Kept(files) => files.directory().sync(),
        }
    }

    fn discard(&self) {
        if !self.new.is_empty() {
            // A disk that takes nothing may not let it go either: the next writer does.
            let _ = self.place.files().directory().remove(&self.temporary);
        }
    }
}

impl Locked<'_> {
    /// Writes those of the books `new` that differ from `old`, which are the books of the same GPUs as they are on
    /// disk, and what of them is to outlive a reboot: all of it, or nothing.
    ///
    /// # Errors
    /// Returns an error if one cannot be written, also where what was written before it cannot be undone, which it says
    /// then: a disk became read-only on the way.
    pub fn replace(&self, old: &[Book], new: &[Book]) -> LedgerResult<()> {
        let changed = || old.iter().zip(new).filter(|(old, new)| old != new);
        changed().try_for_each(|(old, _)| self.check_restored(&old.gpu))?;
        let held: Vec<Book> = changed()
            .filter(|(old, _)| old.has_times())
            .map(|(old, _)| {
                let mut old = old.clone();
                old.note_held();
                old
            })
            .collect();
        self.ledger().note_begun(changed().map(|(_, new)| new).chain(&held))?;
        let reserved: Vec<(Book, Book)> = changed()
            .map(|(old, new)| (reservations(old), reservations(new)))
            .filter(|(old, new)| old != new)
            .collect();
        let missing = match reserved.iter().any(|(_, new)| !new.is_empty()) {
            true => Missing::Make,
            false => Missing::Leave,
        };
        let kept = match reserved.is_empty() {
            true => None,
            false => self.ledger().kept(missing)?,
        };
        let is_more = |(old, new): &&(Book, Book)| new.claims.iter().any(|claim| !old.claims.contains(claim));
        let (more, less): (Vec<_>, Vec<_>) = reserved.iter().partition(is_more);
        let mut steps: Vec<(Place<'_>, &Book, &Book)> = Vec::new();
        if let Some(kept) = &kept {
            steps.extend(more.iter().map(|(old, new)| (Place::Kept(kept), old, new)));
        }
        steps.extend(changed().map(|(old, new)| (Place::Ledger(self.ledger()), old, new)));
        if let Some(kept) = &kept {
            steps.extend(less.iter().map(|(old, new)| (Place::Kept(kept), old, new)));
        }
        let steps: Vec<Step<'_>> = steps.into_iter().enumerate().map(Step::of).collect();
        all_or_none(&steps)?;
        if let Some(recorder) = &self.recorder {
            changed().for_each(|(old, new)| recorder.note_change(&old.claims, &new.claims));
        }
        Ok(())
    }
}

fn all_or_none(steps: &[Step<'_>]) -> LedgerResult<()> {
    if let Err(error) = steps.iter().try_for_each(Step::prepare) {
        steps.iter().for_each(Step::discard);
        return Err(error.into());
    }
    for (number, step) in steps.iter().enumerate() {
        let (done, error) = match step.put_in_place() {
            Err(error) => (number, error),
            Ok(()) => match step.sync() {
                Err(error) => (number + 1, error),
                Ok(()) => continue,
            },
        };
        let (done, others) = steps.split_at(done);
        others.iter().for_each(Step::discard);
        let undone = done.iter().rev().map(|step| step.place.write(step.old));
        let wrong: Vec<LedgerError> = undone.filter_map(LedgerResult::err).collect();
        return Err(match wrong.into_iter().next() {
            None => error,
            Some(why) => error.and_hint(format_args!(
                "a part of it is recorded, because {}",
                line(&Error::from(why))
            )),
        }
        .into());
    }
    Ok(())
}
