//! Reserving shares that others hold: who wants them waits in the queue.

use super::draft::{Draft, wanted};
use super::findings::is_free;
use super::{Offer, Reservation, ReserveError};
use crate::share::{Fit, Plan, Share, SplitDevice};
use std::time::Duration;
use tranche_core::claims::{Attempt, Claims, LockedClaims};
use tranche_core::ledger::{Book, Claim, WaitedFor, Waiter};

impl Plan {
    /// As [`Plan::reserve_all`], and waits up to `wait` for what others hold, in the order of coming. One that can
    /// also be served by a share that nobody ahead waits for does not wait for those ahead.
    ///
    /// # Errors
    /// As [`Plan::reserve_all`]. If the wishes could not be served on an unused machine either, nothing is
    /// waited for. [`ReserveError::TimedOut`] has the last reason.
    pub fn reserve_all_waiting(
        &self,
        claims: &Claims,
        reservations: &[Reservation],
        offer: &impl Offer,
        wait: Duration,
    ) -> Result<Vec<(Fit, Claim)>, ReserveError> {
        claims.take_turn(&self.attempt(claims, reservations, offer), wait)
    }

    /// The attempt to reserve what `reservations` say, for a caller that decides by itself when it is made.
    pub fn attempt<'a>(
        &'a self,
        claims: &'a Claims,
        reservations: &'a [Reservation],
        offer: &'a impl Offer,
    ) -> impl Attempt<Got = Vec<(Fit, Claim)>, Error = ReserveError> + 'a {
        ReserveAttempt {
            plan: self,
            reservations,
            offer,
            unused: || Draft::new(self, claims.machine(), claims.uid()),
        }
    }

    /// Whether a share is free that serves one of `wants`, alone or with others.
    pub fn is_partly_free(&self, books: &[Book], wants: &[WaitedFor]) -> bool {
        let is_wanted = |split: &SplitDevice, share: &Share| {
            let part = split.part(std::slice::from_ref(&share.name));
            wants.iter().any(|wanted| wanted.overlaps(&split.key, &part))
        };
        let shares = self
            .devices
            .iter()
            .flat_map(|split| split.shares.iter().map(move |share| (split, share)));
        let mut free = shares.filter(|(split, share)| is_free(books, split, share));
        free.any(|(split, share)| is_wanted(split, share))
    }
}

struct ReserveAttempt<'a, O, U> {
    plan: &'a Plan,
    reservations: &'a [Reservation],
    offer: &'a O,
    /// A machine where nothing is held and nobody waits.
    unused: U,
}

impl<'a, O: Offer, U: Fn() -> Draft<'a>> Attempt for ReserveAttempt<'a, O, U> {
    type Got = Vec<(Fit, Claim)>;
    type Error = ReserveError;

    fn make(&self, claims: &LockedClaims<'_>, ahead: Option<Vec<Waiter>>) -> Result<Self::Got, ReserveError> {
        match ahead {
            None => self.plan.reserve_all(claims, self.reservations, self.offer),
            Some(ahead) => self.plan.reserve_after(claims, self.reservations, self.offer, &ahead),
        }
    }

    fn may_pass(error: &ReserveError) -> bool {
        error.may_pass()
    }

    fn worth_waiting(&self, refused: ReserveError) -> Result<ReserveError, ReserveError> {
        let fits = (self.unused)().take_all(self.reservations)?;
        let allowed = fits.iter().try_for_each(|fit| self.offer.allow_ever(fit));
        allowed.map_err(ReserveError::OverLimit).map(|()| refused)
    }

    fn would_succeed(&self, ahead: &[Waiter]) -> bool {
        let mut draft = Draft {
            ahead,
            ..(self.unused)()
        };
        draft.take_all(self.reservations).is_ok()
    }

    fn wants(&self) -> Vec<WaitedFor> {
        let wants = self.reservations.iter();
        wants.flat_map(|one| wanted(self.plan, &one.wish)).collect()
    }

    fn timed_out(waited: Duration, last: ReserveError) -> ReserveError {
        let last = Box::new(last);
        ReserveError::TimedOut { waited, last }
    }
}
