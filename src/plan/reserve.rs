//! Reserving shares of a plan for a holder that comes later ([`Plan::reserve`]), and what of the held shares a plan
//! does not know ([`findings()`]).
//!
//! Errors are typed ([`ReserveError`]). Only [`explain()`] makes text for people.

mod draft;
mod examined;
mod explain;
mod findings;
mod wait;

pub use examined::OfExamined;
pub use explain::{explain, list};
pub use findings::{Finding, InBooks, findings, has_own_amounts, held_unsplit};
pub use wait::FreeParts;

use crate::share::{Fit, Plan, Wish};
use draft::{Draft, add_missing};
use std::time::Duration;
use tranche_core::claims::{Claims, LockedClaims};
use tranche_core::error::{Error, Kind};
use tranche_core::ledger::{
    Book, Books, Claim, DamagedBook, Holder, LedgerError, Refused, Waiter, WhyOut, is_start_name, start_name,
};
use tranche_core::types::{CdiKind, Device, DeviceKey};

/// Seconds for which shares are reserved for a start whose process is not known: more than an engine needs from its
/// `precreate` hooks to its `createRuntime` hooks.
const TTL_OF_A_START: u64 = 60;

/// What is reserved.
#[derive(Debug)]
pub struct Reservation {
    /// The name of the claim.
    pub name: String,
    /// How much, of which device.
    pub wish: Wish,
    /// For whom: a person for a claim that waits for a container, or the container that is being created.
    pub holder: Holder,
    /// The process that creates the container, whose end ends the reservation.
    pub process: Option<u32>,
    /// How an engine was asked for it, for people; `None` if that is not known.
    pub asked_as: Option<String>,
    /// Whether it is released together with the first holder that uses it.
    pub once: bool,
    /// Whether containers of engines that run as root may use it, although it belongs to another user.
    pub for_root: bool,
    /// Seconds after which it is collected while nobody uses it.
    pub ttl: Option<u64>,
}

impl Reservation {
    /// A claim that waits for its first user and is released together with that user.
    pub fn of(name: &str, wish: Wish) -> Self {
        Self {
            name: name.to_owned(),
            wish,
            holder: Holder::Person,
            process: None,
            asked_as: Some(CdiKind::of_claim(name)),
            once: true,
            for_root: false,
            ttl: None,
        }
    }

    /// A claim for the start of the container `holder`, under a new name. It ends with `process`, which creates the
    /// container, unless the container has entered it by then. Without a process, it ends after a minute.
    ///
    /// # Errors
    /// Returns an error if the kernel gives no random number for the name.
    pub fn for_start(wish: Wish, holder: Holder, process: Option<u32>) -> Result<Self, Error> {
        Ok(Self {
            holder,
            process,
            asked_as: None,
            ttl: process.is_none().then_some(TTL_OF_A_START),
            ..Self::of(&start_name()?, wish)
        })
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

    /// The devices of `plan` that the host does not have any more. It is asked while the ledger is locked.
    ///
    /// # Errors
    /// Returns an error if the host cannot be examined.
    fn gone(&self, _plan: &Plan) -> Result<Vec<DeviceKey>, Error> {
        Ok(Vec::new())
    }

    /// Checks that the user who asks may hold the shares of `fit` in addition to what is held.
    ///
    /// # Errors
    /// Returns the limit. It may be different when something is released.
    fn allow(&self, _fit: &Fit) -> Result<(), Error> {
        Ok(())
    }

    /// Checks that the user who asks may hold the shares of `fit` when nothing else is held.
    ///
    /// # Errors
    /// Returns the limit, which does not change while the policy stays.
    fn allow_ever(&self, _fit: &Fit) -> Result<(), Error> {
        Ok(())
    }

    /// Offers the shares of `fit`. Returns the file that offers them, if there is one.
    ///
    /// # Errors
    /// Returns an error if they cannot be offered. Then they are not claimed.
    fn publish(&self, _fit: &Fit) -> Result<Option<String>, Error> {
        Ok(None)
    }

    /// Undoes every [`Offer::publish`], because the claims were not made.
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
        /// How many wait for it already.
        waiting: usize,
    },
    /// Every device that could serve the wish is out of service.
    #[error("{}", out.iter().map(|(device, why)| format!("{device}: {why}")).collect::<Vec<_>>().join("; "))]
    OutOfService {
        /// The devices, each with the reason.
        out: Vec<(Device, WhyOut)>,
        /// The devices of the plan that are in service.
        others: Vec<Device>,
    },
    /// What is free is left to others who have waited for it.
    #[error("{wish}: {}", Refused::Waiting { waiting: *waiting })]
    Behind {
        /// What was wished for.
        wish: String,
        /// How many wait for the same shares.
        waiting: usize,
    },
    /// Who asks may not hold as much.
    #[error("{0}")]
    OverLimit(#[source] Error),
    /// It was waited for in vain.
    #[error("{last}; waited {} s", waited.as_secs())]
    TimedOut {
        /// For how long.
        waited: Duration,
        /// Why nothing could be reserved at the end.
        #[source]
        last: Box<ReserveError>,
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

impl ReserveError {
    /// Whether it may be different when something is released.
    fn may_pass(&self) -> bool {
        match self {
            ReserveError::NothingFits { error, .. } => error.kind() == Kind::Failed,
            ReserveError::Ledger(LedgerError::Refused(refused)) => {
                matches!(
                    refused,
                    Refused::Misfit { .. } | Refused::Taken { .. } | Refused::Reserved(_)
                )
            }
            ReserveError::Behind { .. } | ReserveError::OverLimit(_) => true,
            ReserveError::Ledger(_)
            | ReserveError::OutOfService { .. }
            | ReserveError::TimedOut { .. }
            | ReserveError::Offer(_) => false,
        }
    }
}

impl Plan {
    /// As [`Plan::reserve_waiting`], without waiting.
    ///
    /// # Errors
    /// As [`Plan::reserve_all`], and if the claims cannot be locked.
    pub fn reserve(
        &self,
        claims: &Claims,
        reservation: &Reservation,
        offer: &impl Offer,
    ) -> Result<(Fit, Claim), ReserveError> {
        self.reserve_waiting(claims, reservation, offer, Duration::ZERO)
    }

    /// As [`Plan::reserve_all_waiting`], for one reservation.
    ///
    /// # Errors
    /// As [`Plan::reserve_all_waiting`].
    pub fn reserve_waiting(
        &self,
        claims: &Claims,
        reservation: &Reservation,
        offer: &impl Offer,
        wait: Duration,
    ) -> Result<(Fit, Claim), ReserveError> {
        let reserved = self.reserve_all_waiting(claims, std::slice::from_ref(reservation), offer, wait)?;
        let lost = || Refused::NoSuchClaim(reservation.name.clone());
        Ok(reserved.into_iter().next().ok_or_else(lost)?)
    }

    /// Chooses the shares that serve each wish best, offers them, and records the claims: all of them, or none. Shares
    /// that others wait for are left to those.
    ///
    /// The claims are recorded last. A process that is killed on the way leaves at worst an offer without a claim,
    /// which nobody can use and which the next [`Offer::sweep`] removes; and with reservations on several GPUs,
    /// some of them, which end with [`Reservation::process`] or their time to live.
    ///
    /// # Errors
    /// Returns why nothing was reserved. For a claim that a person names, a ledger that cannot be read completely is
    /// one reason, because the part that cannot be read may have a claim of the same name.
    pub fn reserve_all(
        &self,
        locked: &LockedClaims<'_>,
        reservations: &[Reservation],
        offer: &impl Offer,
    ) -> Result<Vec<(Fit, Claim)>, ReserveError> {
        self.reserve_after(locked, reservations, offer, &locked.ledger().waiters()?)
    }

    /// As [`Plan::reserve_all`], for one who comes after `ahead`.
    fn reserve_after(
        &self,
        locked: &LockedClaims<'_>,
        reservations: &[Reservation],
        offer: &impl Offer,
        ahead: &[Waiter],
    ) -> Result<Vec<(Fit, Claim)>, ReserveError> {
        let Books {
            books: mut old,
            damaged,
            ..
        } = locked.books_on_disk()?;
        let machine = locked.claims().machine();
        add_missing(&mut old, self, |gpu| locked.ledger().empty_book(gpu))?;
        let is_for_starts = reservations.iter().all(|reservation| is_start_name(&reservation.name));
        if !is_for_starts && !damaged.is_empty() {
            return Err(damaged_one(damaged, |_| true));
        }
        let gone = offer.gone(self).map_err(ReserveError::Offer)?;
        let attempt = |all: bool| -> Result<(Vec<Book>, Vec<Fit>), ReserveError> {
            let draft = Draft::new(self, machine, locked.claims().uid());
            let mut draft = Draft {
                books: old.clone(),
                damaged: &damaged,
                gone: &gone,
                ahead,
                ..draft
            };
            draft.books.iter_mut().for_each(|book| {
                locked.claims().ask(book);
                match all {
                    true => drop(book.collect(machine)),
                    false => book.collect_failed_starts(machine),
                }
            });
            if !is_for_starts {
                draft.refuse_names(reservations)?;
                let claims: Vec<&Claim> = draft.books.iter().flat_map(|book| &book.claims).collect();
                offer.sweep(&claims).map_err(ReserveError::Offer)?;
            }
            let fits = draft.take_all(reservations)?;
            Ok((draft.books, fits))
        };
        // Looking at the process of each claim takes long. A start looks at those of other starts, and at the rest only
        // if it gets nothing otherwise.
        let quick = is_for_starts.then(|| attempt(false));
        let done = match quick {
            Some(done) if !matches!(&done, Err(error) if error.may_pass()) => done,
            _ => attempt(true),
        };
        let asked = self
            .devices
            .iter()
            .filter(|split| reservations.iter().any(|one| one.wish.is_about(split)));
        let is_asked = |book: &DamagedBook| asked.clone().any(|split| book.may_be_of(split.key.gpu()));
        let (mut new, fits) = match done {
            Err(error) if error.may_pass() && damaged.iter().any(is_asked) => {
                return Err(damaged_one(damaged, is_asked));
            }
            done => done?,
        };
        let recorded =
            publish(&mut new, reservations, &fits, offer).and_then(|()| Ok(locked.ledger().replace(&old, &new)?));
        if let Err(error) = recorded {
            return Err(match offer.withdraw() {
                Ok(()) => error,
                Err(left) => ReserveError::Offer(left.and_hint(format_args!("nothing was reserved: {error}"))),
            });
        }
        let claim_of = |(reservation, fit): (&Reservation, Fit)| {
            let claim = new.iter().find_map(|book| book.named(&reservation.name)).cloned();
            let claim = claim.ok_or_else(|| Refused::NoSuchClaim(reservation.name.clone()))?;
            Ok((fit, claim))
        };
        reservations.iter().zip(fits).map(claim_of).collect()
    }
}

/// The error of the first of `damaged` that matters.
fn damaged_one(damaged: Vec<DamagedBook>, matters: impl Fn(&DamagedBook) -> bool) -> ReserveError {
    let first = damaged.into_iter().find(matters);
    first.map_or(Refused::NoneFree.into(), |book| LedgerError::Damaged(book).into())
}

/// Offers what was chosen for each reservation, and notes the file of each offer in `books`.
fn publish(
    books: &mut [Book],
    reservations: &[Reservation],
    fits: &[Fit],
    offer: &impl Offer,
) -> Result<(), ReserveError> {
    for (reservation, fit) in reservations.iter().zip(fits) {
        offer.allow(fit).map_err(ReserveError::OverLimit)?;
        let file = offer.publish(fit).map_err(ReserveError::Offer)?;
        let mut claims = books.iter_mut().flat_map(|book| &mut book.claims);
        if let Some(claim) = claims.find(|claim| claim.name.as_deref() == Some(&reservation.name)) {
            claim.spec_file = file;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
