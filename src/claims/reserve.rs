//! Reserving shares of a plan for a holder that comes later.

use super::plan::is_free;
use super::{Claims, LockedClaims};
use crate::error::Error;
use crate::ledger::{Ask, Change, Claim, ClaimState, Holder, LedgerError, Refused};
use crate::share::{Fit, Plan, SplitDevice, Wish, fit};

/// What is reserved.
#[derive(Debug)]
pub struct Reservation {
    /// The name of the claim.
    pub name: String,
    /// How much, of which device.
    pub wish: Wish,
    /// For whom: a person for a claim that waits for a container.
    pub holder: Holder,
    /// Whether it is given back together with the first holder that uses it.
    pub once: bool,
    /// Seconds after which it is given back while nobody uses it.
    pub ttl: Option<u64>,
}

impl Reservation {
    /// A claim that waits for its first user and is released together with that user.
    pub fn of(name: &str, wish: Wish) -> Self {
        Self {
            name: name.to_owned(),
            wish,
            holder: Holder::Person,
            once: true,
            ttl: None,
        }
    }
}

/// How a claim becomes known to the programs that use it: as a CDI specification, for example. All of it happens while
/// the ledger is locked. By default, only the maker of a claim knows it, and nothing is written.
pub trait Offer {
    /// Removes what earlier claims left behind. `claims` are all that exist.
    ///
    /// # Errors
    /// Returns an error if something is there that keeps a new claim from being made.
    fn sweep(&self, _claims: &[&Claim]) -> Result<(), Error> {
        Ok(())
    }

    /// Offers the shares of `fit`. Returns the file that offers them, if there is one.
    ///
    /// # Errors
    /// Returns an error if they cannot be offered. Then they are not claimed.
    fn publish(&self, _fit: &Fit) -> Result<Option<String>, Error> {
        Ok(None)
    }

    /// Undoes [`Offer::publish`], because the claim was not made.
    ///
    /// # Errors
    /// Returns an error if it cannot be undone.
    fn withdraw(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// A claim that only its maker knows.
#[derive(Debug)]
pub struct Unoffered;

impl Offer for Unoffered {}

/// Why nothing was reserved.
#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    /// The ledger could not be used, or refuses the claim: [`Refused::NameTaken`].
    #[error("{0}")]
    Ledger(#[from] LedgerError),
    /// No device has free what is wished for.
    #[error("{error}")]
    NothingFits {
        /// What each device has free.
        #[source]
        error: Error,
        /// The claims that hold something of the devices in question.
        held: Vec<Claim>,
    },
    /// It cannot be offered to those who would use it.
    #[error("{0}")]
    Offer(#[source] Error),
}

impl From<Refused> for ReserveError {
    fn from(refused: Refused) -> Self {
        ReserveError::Ledger(refused.into())
    }
}

impl Claims {
    /// As [`LockedClaims::reserve`].
    ///
    /// # Errors
    /// As [`LockedClaims::reserve`].
    pub fn reserve(
        &self,
        plan: &Plan,
        reservation: &Reservation,
        offer: &impl Offer,
    ) -> Result<(Fit, Claim), ReserveError> {
        self.lock()?.reserve(plan, reservation, offer)
    }
}

impl LockedClaims<'_> {
    /// Chooses the shares that serve the wish best, offers them, and records the claim.
    ///
    /// In this order, a process that is killed on the way leaves nothing that is held: at worst an offer without a
    /// claim, which nobody can use, and which the next [`Offer::sweep`] removes.
    ///
    /// # Errors
    /// Returns why nothing was reserved. A ledger that cannot be read completely is one reason, because the part that
    /// cannot be read may have a claim of the same name, or hold the device.
    pub fn reserve(
        &self,
        plan: &Plan,
        reservation: &Reservation,
        offer: &impl Offer,
    ) -> Result<(Fit, Claim), ReserveError> {
        let Reservation { name, wish, .. } = reservation;
        if let Some(problem) = self.collect()?.problems.into_iter().next() {
            return Err(problem.into());
        }
        let books = self.books()?.books;
        if books.iter().any(|book| book.named(name).is_some()) {
            return Err(Refused::NameTaken(name.clone()).into());
        }
        let held: Vec<&Claim> = books.iter().flat_map(|book| &book.claims).collect();
        offer.sweep(&held).map_err(ReserveError::Offer)?;
        let asked = |split: &&SplitDevice| wish.device.is_none_or(|device| device == split.device);
        let is_asked = |claim: &Claim| {
            let mut splits = plan.devices.iter().filter(asked);
            splits.any(|split| claim.device.overlaps(&split.key))
        };
        let found = fit(plan, wish, |split, share| is_free(&books, split, share));
        let found = found.map_err(|error| ReserveError::NothingFits {
            error,
            held: held.into_iter().filter(|claim| is_asked(claim)).cloned().collect(),
        })?;
        let split = plan
            .split(found.device)
            .ok_or_else(|| ReserveError::Offer(Error::failed(found.device, "is not shared by the policy")))?;
        let spec_file = offer.publish(&found).map_err(ReserveError::Offer)?;
        let ask = Ask {
            device: split.key.clone(),
            part: split.part(&found.shares),
            bounds: split.bounds(),
            asked_as: Some(format!("nvidia.com/claim={name}")),
            spec_file,
            name: Some(name.clone()),
            holder: reservation.holder.clone(),
            process: None,
            state: ClaimState::Reserved,
            once: reservation.once,
            alone: false,
            uid: self.claims.uid,
            ttl: reservation.ttl,
        };
        let taken = self.locked.change(&split.key, |book| {
            book.take(&ask, &self.claims.machine)?;
            let claim = book.named(name).cloned();
            let claim = claim.ok_or_else(|| Refused::NoSuchClaim(name.clone()))?;
            Ok((claim, Change::Made))
        });
        match taken {
            Ok(claim) => Ok((found, claim)),
            Err(error) => {
                offer.withdraw().map_err(ReserveError::Offer)?;
                Err(error.into())
            }
        }
    }
}
