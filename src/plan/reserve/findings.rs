//! Between a plan and the ledger: what a share of a plan is in the ledger, and what of the ledger a plan does not know.

use crate::share::{Free, Holds, Plan, SplitDevice};
use std::collections::BTreeSet;
use tranche_core::ledger::{self, Book, Books, Claim, HeldPart, Misfit, OutOfService};
use tranche_core::types::{DeviceKey, GpuUuid, ShareName};

/// What is held in books: a share is free that nobody holds, and that fits beside what is held of its device.
#[derive(Debug, Clone, Copy)]
pub struct InBooks<'a> {
    books: &'a [Book],
    out_of_service: Option<&'a OutOfService>,
}

impl<'a> InBooks<'a> {
    /// Books with one for each GPU in question: a book knows what of its GPU is out of service.
    pub(super) fn each(books: &'a [Book]) -> Self {
        Self {
            books,
            out_of_service: None,
        }
    }

    /// All books of a machine. Of a GPU without a book, nothing is held.
    pub fn of(books: &'a Books) -> Self {
        Self {
            books: &books.books,
            out_of_service: Some(&books.out_of_service),
        }
    }

    /// How many of `free` of `split` can be claimed together: beside shares of an earlier policy, not all need fit.
    pub fn together(&self, split: &SplitDevice, free: &Free<'_>) -> usize {
        let Some(book) = self.book(split) else {
            return free.len();
        };
        let replicas = match free {
            Free::Equal(replicas) => replicas,
            Free::Named(_) => {
                let shares = split.part(&free.listed()).shares().to_vec();
                return book.fit_together(&split.key, shares, split.bounds());
            }
        };
        let Some(first) = replicas.names().next() else {
            return 0;
        };
        // Several replicas are one share of their sum.
        let fit = |number: usize| {
            let part = HeldPart::share(first.clone(), split.promise(replicas.each).times(number));
            book.is_free(&split.key, &part, split.bounds())
        };
        let (mut fits, mut too_many) = (0, free.len() + 1);
        while fits + 1 < too_many {
            let next = fits + (too_many - fits) / 2;
            match fit(next) {
                true => fits = next,
                false => too_many = next,
            }
        }
        fits
    }

    fn book(&self, split: &SplitDevice) -> Option<&'a Book> {
        self.books.iter().find(|book| book.gpu == *split.key.gpu())
    }
}

impl Holds for InBooks<'_> {
    fn is_free(&self, split: &SplitDevice, name: &ShareName) -> bool {
        let part = split.part(std::slice::from_ref(name));
        match self.book(split) {
            Some(book) => book.is_free(&split.key, &part, split.bounds()),
            None => self.out_of_service.is_none_or(|out| out.why(&split.key).is_none()),
        }
    }

    fn named(&self, split: &SplitDevice) -> Vec<ShareName> {
        let held = self.book(split).into_iter().flat_map(Book::held);
        let held = held.filter(|(device, _)| **device == split.key);
        let held = held.flat_map(|(_, part)| part.shares());
        let reserved = self
            .book(split)
            .into_iter()
            .flat_map(|book| book.reserved_shares(&split.key));
        held.chain(reserved).map(|share| share.name.clone()).collect()
    }
}

/// Something that is held and that a plan does not provide for. The claim stays valid until it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding<'a> {
    /// Shares that the plan does not have, or has under another size or strategy.
    UnknownShare {
        /// The claim.
        claim: &'a Claim,
    },
    /// A claim on a device that the plan does not split. A specification must still claim that device as a whole, or
    /// other containers would get all of it.
    NotSplit {
        /// The claim.
        claim: &'a Claim,
    },
    /// Not every share of the plan can be claimed while these claims are held.
    NoLongerFits {
        /// The device, as people name it.
        device: String,
        /// What does not fit.
        misfit: Misfit,
        /// Who holds what.
        claims: Vec<&'a Claim>,
    },
}

impl<'a> Finding<'a> {
    /// The claim that the plan does not provide for; `None` for a finding about a device.
    pub fn claim(&self) -> Option<&'a Claim> {
        match self {
            Self::UnknownShare { claim } | Self::NotSplit { claim } => Some(claim),
            Self::NoLongerFits { .. } => None,
        }
    }
}

/// What is held in `books` (without claims that are over) and not provided for by `plan`.
pub fn findings<'a>(plan: &Plan, books: &'a [Book]) -> Vec<Finding<'a>> {
    let mut found = Vec::new();
    for claim in books.iter().flat_map(|book| &book.claims) {
        match plan.devices.iter().find(|split| split.key == claim.device) {
            None => found.push(Finding::NotSplit { claim }),
            Some(split) if is_known(split, claim) => {}
            Some(_) => found.push(Finding::UnknownShare { claim }),
        }
    }
    for split in &plan.devices {
        let strangers: Vec<&Claim> = books
            .iter()
            .flat_map(|book| &book.claims)
            .filter(|claim| claim.device.shares_memory_with(&split.key) && claim.part != HeldPart::Whole)
            .filter(|claim| claim.device != split.key || !is_known(split, claim))
            .collect();
        // The shares of a plan fit beside one another, so nothing is looked at for a device that has them alone.
        if strangers.is_empty() {
            continue;
        }
        let all = match split.replica() {
            Some(replica) => {
                let all = split.promise(replica).times(split.shares.len());
                HeldPart::share(replica.name.clone(), all)
            }
            None => split.part(&split.shares.names().collect::<Vec<_>>()),
        };
        let held = strangers.iter().map(|claim| (&claim.device, &claim.part));
        if let Err(misfit) = ledger::fits(&split.key, &all, split.bounds(), held) {
            found.push(Finding::NoLongerFits {
                device: split.device.to_string(),
                misfit,
                claims: strangers,
            });
        }
    }
    found
}

/// The devices that the plan of `found` does not split and of which something is, or may be, held. A GPU whose book
/// cannot be read is one of them. `gpus` are those of the host.
pub fn held_unsplit<'a>(
    found: &[Finding<'_>],
    books: &Books,
    gpus: impl IntoIterator<Item = &'a GpuUuid>,
) -> BTreeSet<DeviceKey> {
    let is_unreadable = |gpu: &&GpuUuid| books.damaged.iter().any(|book| book.may_be_of(gpu));
    let unreadable = gpus.into_iter().filter(is_unreadable);
    let unreadable = unreadable.cloned().map(DeviceKey::whole);
    let held = found.iter().filter_map(|finding| match finding {
        Finding::NotSplit { claim } => Some(claim.device.clone()),
        Finding::UnknownShare { .. } | Finding::NoLongerFits { .. } => None,
    });
    unreadable.chain(held).collect()
}

/// Whether a claim may have parts of any size, which no policy names: a resource claim of Kubernetes on a device that
/// is still shared in the same way.
pub fn has_own_amounts(split: &SplitDevice, claim: &Claim) -> bool {
    claim.resource_claim().is_some() && claim.part.strategy() == split.method.strategy()
}

/// Whether a plan has each share of a claim in the size that was promised.
fn is_known(split: &SplitDevice, claim: &Claim) -> bool {
    if has_own_amounts(split, claim) {
        return true;
    }
    claim.part.shares().iter().all(|held| {
        let share = split.share(&held.name);
        share.is_some_and(|share| split.promise(share) == held.promise)
    })
}

#[cfg(test)]
mod tests;
