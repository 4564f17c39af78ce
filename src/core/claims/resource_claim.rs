//! What is reserved for a resource claim of Kubernetes.

use super::{LockedClaims, make_way};
use crate::error::Error;
use crate::ledger::{
    Ask, Book, Books, Bounds, Claim, ClaimState, HeldPart, Holder, KubernetesObject, LedgerError, LedgerResult,
};
use crate::types::DeviceKey;

/// A part of a device that a resource claim gets.
#[derive(Debug, Clone)]
pub struct ClaimPart {
    /// The device.
    pub device: DeviceKey,
    /// What of it.
    pub part: HeldPart,
    /// The most that may be promised of the device to all holders together.
    pub bounds: Bounds,
    /// The name under which it is reserved: [`KubernetesObject::claim_on`].
    pub name: String,
    /// Its CDI name.
    pub asked_as: String,
}

/// What [`LockedClaims::reserve_for`] did.
#[derive(Debug)]
pub struct Reserved {
    /// Whether the claim had something before.
    pub had: bool,
    /// What [`LockedClaims::keep`] returns.
    pub problems: Vec<Error>,
}

/// Why [`LockedClaims::reserve_for`] has reserved nothing.
#[derive(Debug)]
pub struct NotReserved {
    /// The place of the part that was refused; `None` if the ledger could not be read or written.
    pub part: Option<usize>,
    /// Why.
    pub error: LedgerError,
}

impl From<LedgerError> for NotReserved {
    fn from(error: LedgerError) -> Self {
        Self { part: None, error }
    }
}

impl LockedClaims<'_> {
    /// Reserves `parts` for `claim`: all of them, or none. What the claim has already stays as it is, and what it has
    /// not any more is given up.
    ///
    /// # Errors
    /// Returns who holds one of them, what does not fit, or why the ledger cannot be read or written.
    pub fn reserve_for(&self, claim: &KubernetesObject, parts: &[ClaimPart]) -> Result<Reserved, NotReserved> {
        let Books {
            books: mut old,
            damaged,
            ..
        } = self.books_on_disk()?;
        let mut claims = old.iter().flat_map(|book| &book.claims);
        let had = claims.any(|had| had.resource_claim().as_ref() == Some(claim));
        for part in parts {
            let gpu = part.device.gpu();
            if old.iter().all(|book| book.gpu != *gpu) {
                old.push(self.ledger().empty_book(gpu)?);
            }
        }
        let is_needed = |gpu: &_| parts.iter().any(|part| part.device.gpu() == gpu);
        let (needed, damaged): (Vec<_>, Vec<_>) = damaged
            .into_iter()
            .partition(|book| book.gpu.as_ref().is_none_or(is_needed));
        if let Some(book) = needed.into_iter().next() {
            return Err(LedgerError::Damaged(book).into());
        }
        let mut new = old.clone();
        let machine = self.claims().machine();
        let is_still_its = |had: &Claim| {
            let is_it = |part: &ClaimPart| (&part.device, &part.part) == (&had.device, &had.part);
            parts
                .iter()
                .any(|part| had.name.as_ref() == Some(&part.name) && is_it(part))
        };
        for book in &mut new {
            let left = names(book, &claim.uid, |had| !is_still_its(had));
            book.give_up(&left, machine);
        }
        for (place, part) in parts.iter().enumerate() {
            let ask = Ask {
                device: part.device.clone(),
                part: part.part.clone(),
                bounds: part.bounds,
                asked_as: Some(part.asked_as.clone()),
                spec_file: None,
                name: Some(part.name.clone()),
                holder: Holder::ResourceClaim(claim.clone()),
                process: None,
                state: ClaimState::Reserved,
                once: false,
                for_root: false,
                alone: false,
                uid: self.claims().uid(),
                ttl: None,
            };
            let mut books = new.iter_mut().filter(|book| book.gpu == *part.device.gpu());
            if let Some(book) = books.next() {
                make_way(book, &part.device);
                book.take(&ask, machine).map_err(|error| NotReserved {
                    part: Some(place),
                    error: error.into(),
                })?;
            }
        }
        self.ledger().replace(&old, &new)?;
        // Also what it had already: a request that is repeated makes its promise again.
        let problems = self.ledger().keep_books(new, &damaged, is_needed)?;
        Ok(Reserved { had, problems })
    }

    /// Gives up what is reserved for the resource claim with this UID. What its containers still use ends with them.
    /// Returns what [`LockedClaims::keep`] does.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read or written.
    pub fn give_up_claim(&self, uid: &str) -> LedgerResult<Vec<Error>> {
        self.give_up_those(|book| names(book, uid, |_| true))
    }

    /// Gives up those reservations of resource claims that `meant` is true of: their devices do not exist any more.
    /// Returns what [`LockedClaims::keep`] does.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read or written.
    pub fn give_up_lost(&self, meant: impl Fn(&Claim) -> bool) -> LedgerResult<Vec<Error>> {
        self.give_up_those(|book| {
            let lost = book
                .claims
                .iter()
                .filter(|claim| claim.resource_claim().is_some() && !claim.joined && meant(claim));
            lost.filter_map(|claim| claim.name.clone()).collect()
        })
    }
}

/// The names of those reservations of the resource claim with this UID that `meant` is true of.
fn names(book: &Book, uid: &str, meant: impl Fn(&Claim) -> bool) -> Vec<String> {
    let its = book.claims.iter().filter(|claim| {
        let is_its = claim.resource_claim().is_some_and(|claim| claim.uid == uid);
        is_its && !claim.joined && meant(claim)
    });
    its.filter_map(|claim| claim.name.clone()).collect()
}
