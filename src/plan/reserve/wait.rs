//! Reserving shares that others hold: who wants them waits in the queue.

use super::draft::{Draft, wanted};
use super::findings::InBooks;
use super::{Offer, Reservation, ReserveError};
use crate::share::{Fit, Holds, Plan, SplitDevice};
use std::collections::BTreeMap;
use std::time::Duration;
use tranche_core::claims::{Attempt, Claims, LockedClaims};
use tranche_core::ledger::{Book, Claim, WaitedFor, Waiter};
use tranche_core::types::{DeviceKey, GpuUuid, HeldPart};

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
}

/// What of a plan is free, as the ledger was at one moment. Each GPU is looked at once, when it is asked for.
#[derive(Debug, Default)]
pub struct FreeParts {
    of_gpus: BTreeMap<GpuUuid, Vec<(DeviceKey, HeldPart)>>,
}

impl FreeParts {
    /// Whether a share of `plan` is free beside the claims in `books` that serves one of `wants`, alone or with others.
    /// Both are the same each time.
    pub fn may_serve(&mut self, plan: &Plan, books: &[Book], wants: &[WaitedFor]) -> bool {
        wants.iter().any(|wanted| {
            let gpu = wanted.device.gpu();
            let of_gpu = match self.of_gpus.get(gpu) {
                Some(of_gpu) => of_gpu,
                None => self.of_gpus.entry(gpu.clone()).or_insert(free_of(plan, books, gpu)),
            };
            let is_listed = of_gpu.iter().any(|(device, part)| wanted.overlaps(device, part));
            // Of many replicas, not each is in the list.
            is_listed || is_free_by_name(plan, books, wanted)
        })
    }
}

/// Whether a share that is waited for by its name is free.
fn is_free_by_name(plan: &Plan, books: &[Book], wanted: &WaitedFor) -> bool {
    let split = plan.devices.iter().find(|split| split.key == wanted.device);
    let is_free = |split: &SplitDevice| {
        let mut known = wanted.shares.iter().filter(|name| split.share(name).is_some());
        known.any(|name| InBooks::each(books).is_free(split, name))
    };
    split.is_some_and(is_free)
}

fn free_of(plan: &Plan, books: &[Book], gpu: &GpuUuid) -> Vec<(DeviceKey, HeldPart)> {
    let mut free = Vec::new();
    for split in plan.devices.iter().filter(|split| split.key.gpu() == gpu) {
        let shares = split.free(&InBooks::each(books)).listed().into_iter();
        let parts = shares.map(|name| split.part(&[name]));
        free.extend(parts.map(|part| (split.key.clone(), part)));
    }
    free
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
