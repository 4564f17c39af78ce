//! What changes with a plan: the names that engines can ask for, what they mean, and what of them is refused because of
//! what is held.
//!
//! Nothing is decided here. The names are those that [`derive()`] gives, and what a name asks of the ledger is read
//! from the hook that it would have. Whether that is granted is what the ledger's rules say of a copy of its books.

mod names;
mod settings;
mod until;

pub use names::{Meaning, Offer, offers};
pub use settings::other_settings;
pub use until::{Until, until};

use crate::derive::{Options, Sharing, derive};
use crate::inventory::Inventory;
use crate::reserve::{Finding, findings, held_unsplit};
use crate::share::Plan;
use std::sync::Arc;
use tranche_core::error::Result;
use tranche_core::ledger::{Books, OutOfService, World};
use tranche_core::types::HostPath;

/// A name that stays, and means something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The name and its meaning before.
    pub before: Offer,
    /// The same name with its meaning afterwards.
    pub after: Offer,
}

/// A name that is refused after the change.
#[derive(Debug)]
pub struct Refusal<'a> {
    /// The name, with what it means afterwards.
    pub offer: Offer,
    /// What must happen before it is granted.
    pub until: Until<'a>,
}

/// What changes.
#[derive(Debug, Default)]
pub struct Difference<'a> {
    /// Names that exist afterwards and not before.
    pub appear: Vec<Offer>,
    /// Names that exist before and not afterwards.
    pub vanish: Vec<Offer>,
    /// Names that stay and change their size, strategy or guarantees, or whether they need a claim.
    pub change: Vec<Change>,
    /// Claims that the plan before provides for and the one afterwards does not. They stay valid until they end.
    pub not_offered: Vec<Finding<'a>>,
    /// Names that are refused afterwards because of what the change does: names that are new or changed, that were not
    /// refused before, or that a claim in `not_offered` keeps.
    pub refused: Vec<Refusal<'a>>,
    /// Settings that change without a change of a name, by their keys in the policy, and devices of which something
    /// else changes.
    pub settings: Vec<String>,
}

impl Difference<'_> {
    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.appear.is_empty()
            && self.vanish.is_empty()
            && self.change.is_empty()
            && self.not_offered.is_empty()
            && self.refused.is_empty()
            && self.settings.is_empty()
    }
}

/// The host on which plans are compared.
#[derive(Debug)]
pub struct Host<'a> {
    /// What it has.
    pub inventory: &'a Inventory,
    /// What is held on it, without claims that are over.
    pub books: &'a Books,
    /// The devices of which nothing new is given.
    pub out_of_service: &'a OutOfService,
    /// Where the ledger is.
    pub state_dir: &'a HostPath,
}

impl<'a> Host<'a> {
    /// The names that a specification has under `plan`, and what is held that `plan` does not provide for.
    ///
    /// # Errors
    /// Returns an error if the host has no device.
    pub fn under(&self, plan: &Plan) -> Result<(Vec<Offer>, Vec<Finding<'a>>)> {
        let found = findings(plan, &self.books.books);
        let gpus = self.inventory.gpus.iter().map(|gpu| &gpu.uuid);
        let sharing = Sharing {
            plan: Arc::new(plan.clone()),
            held: held_unsplit(&found, self.books, gpus),
            out_of_service: self.out_of_service.clone(),
            state_dir: self.state_dir.clone(),
        };
        let options = Options {
            sharing: Some(sharing),
            ..Options::default()
        };
        let offers = offers(plan, derive(self.inventory, &options)?);
        Ok((offers, found))
    }

    /// What changes when `after` takes the place of `before`. `world` says which holders are gone.
    ///
    /// # Errors
    /// As [`Host::under`].
    pub fn difference(&self, before: &Plan, after: &Plan, world: &impl World) -> Result<Difference<'a>> {
        let (old, known_strangers) = self.under(before)?;
        let (new, strangers) = self.under(after)?;
        let mut difference = Difference::default();
        for offer in &old {
            match new.iter().find(|one| one.name == offer.name) {
                None => difference.vanish.push(offer.clone()),
                Some(same) if same.meaning == offer.meaning => {}
                Some(other) => difference.change.push(Change {
                    before: offer.clone(),
                    after: other.clone(),
                }),
            }
        }
        let is_new = |offer: &&Offer| old.iter().all(|one| one.name != offer.name);
        difference.appear = new.iter().filter(is_new).cloned().collect();
        let is_of_claim = |finding: &Finding<'_>| finding.claim().is_some();
        let was_known = |finding: &Finding<'_>| known_strangers.iter().all(|one| one.claim() != finding.claim());
        difference.not_offered = strangers.into_iter().filter(is_of_claim).filter(was_known).collect();
        for offer in new {
            let Some(until) = until(&offer, self.books, world) else {
                continue;
            };
            let before = old.iter().find(|one| one.name == offer.name);
            let is_same = before.is_some_and(|one| one.meaning == offer.meaning);
            let was_refused = is_same && before.is_some_and(|one| self::until(one, self.books, world).is_some());
            let mut kept_by = difference.not_offered.iter().filter_map(Finding::claim);
            if !was_refused || kept_by.any(|claim| until.names(claim)) {
                difference.refused.push(Refusal { offer, until });
            }
        }
        difference.settings = other_settings(before, after, &difference);
        Ok(difference)
    }
}

#[cfg(test)]
mod tests;
