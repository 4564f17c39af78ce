//! Claims that are chosen and not recorded yet. Nothing here reads or writes a file of the ledger.

use super::findings::InBooks;
use super::{Reservation, ReserveError};
use crate::share::{Fit, Holds, Plan, SplitDevice, Unused, Wish, fit};
use nix::unistd::geteuid;
use std::convert::Infallible;
use tranche_core::claims::make_way;
use tranche_core::error::{Error, Kind};
use tranche_core::ledger::process::Machine;
use tranche_core::ledger::{
    Ask, Book, Claim, ClaimState, DamagedBook, LedgerError, Refused, ReservedTime, WaitedFor, Waiter, WhyOut,
};
use tranche_core::types::{Device, DeviceKey, GpuUuid, ShareName};

/// The books as they are with the claims that were chosen so far.
pub(super) struct Draft<'a> {
    pub(super) plan: &'a Plan,
    pub(super) machine: &'a Machine,
    pub(super) uid: u32,
    /// One for each GPU of the plan.
    pub(super) books: Vec<Book>,
    /// The books that cannot be read: nothing is chosen of their GPUs.
    pub(super) damaged: &'a [DamagedBook],
    /// The devices that the host does not have any more.
    pub(super) gone: &'a [DeviceKey],
    /// Those who are served first: nothing is chosen that they wait for.
    pub(super) ahead: &'a [Waiter],
}

/// The books of GPUs of `plan` of which nothing is held are not on disk.
pub(super) fn add_missing<E>(
    books: &mut Vec<Book>,
    plan: &Plan,
    empty: impl Fn(&GpuUuid) -> Result<Book, E>,
) -> Result<(), E> {
    for split in &plan.devices {
        if books.iter().all(|book| book.gpu != *split.key.gpu()) {
            books.push(empty(split.key.gpu())?);
        }
    }
    Ok(())
}

impl<'a> Draft<'a> {
    /// A machine where nothing is held, nobody waits, and every device is in service.
    pub(super) fn new(plan: &'a Plan, machine: &'a Machine, uid: u32) -> Self {
        let mut books = Vec::new();
        let Ok(()) = add_missing(&mut books, plan, |gpu| Ok::<_, Infallible>(Book::new(gpu.clone())));
        Self {
            plan,
            machine,
            uid,
            books,
            damaged: &[],
            gone: &[],
            ahead: &[],
        }
    }

    /// Refuses names that a claim has already.
    pub(super) fn refuse_names(&self, reservations: &[Reservation]) -> Result<(), ReserveError> {
        let is_taken =
            |reservation: &&Reservation| self.books.iter().any(|book| book.named(&reservation.name).is_some());
        match reservations.iter().find(is_taken) {
            Some(reservation) => Err(Refused::NameTaken(reservation.name.clone()).into()),
            None => Ok(()),
        }
    }

    /// Chooses the shares that serve each wish best, and takes them.
    pub(super) fn take_all(&mut self, reservations: &[Reservation]) -> Result<Vec<Fit>, ReserveError> {
        reservations.iter().map(|reservation| self.take(reservation)).collect()
    }

    fn take(&mut self, reservation: &Reservation) -> Result<Fit, ReserveError> {
        self.make_way(&reservation.wish);
        let found = self.choose(&reservation.wish)?;
        let split = self.plan.split(found.device);
        let split =
            split.ok_or_else(|| ReserveError::Offer(Error::failed(found.device, "is not shared by the policy")))?;
        let creator = reservation.process.map(|pid| self.machine.creator(pid)).transpose();
        let ask = Ask {
            device: split.key.clone(),
            part: split.part(&found.shares),
            bounds: split.bounds(),
            asked_as: reservation.asked_as.clone(),
            spec_file: None,
            name: Some(reservation.name.clone()),
            holder: reservation.holder.clone(),
            process: creator.map_err(LedgerError::from)?,
            state: ClaimState::Reserved,
            once: reservation.once,
            for_root: reservation.for_root,
            alone: false,
            uid: self.uid,
            ttl: reservation.ttl,
        };
        let book = self.books.iter_mut().find(|book| book.gpu == *split.key.gpu());
        book.map_or(Err(Refused::NoneFree), |book| book.take(&ask, self.machine))?;
        Ok(found)
    }

    /// Lets the owner of the ledger have a device that was just made, who asks for it by its name. A user never does.
    fn make_way(&mut self, wish: &Wish) {
        let split = wish.device.and_then(|device| self.plan.split(device));
        let Some(split) = split.filter(|_| self.uid == geteuid().as_raw()) else {
            return;
        };
        for book in self.books.iter_mut().filter(|book| book.gpu == *split.key.gpu()) {
            make_way(book, &split.key);
        }
    }

    fn choose(&self, wish: &Wish) -> Result<Fit, ReserveError> {
        let free = FreeIn {
            draft: self,
            ahead: &[],
            only_own_time: false,
        };
        if self.books.iter().any(Book::has_times) {
            let own = FreeIn {
                only_own_time: true,
                ..free
            };
            // What is reserved for the user comes first, and nobody has waited for it for longer.
            if let Ok(found) = fit(self.plan, wish, &own) {
                return Ok(found);
            }
        }
        let found = fit(self.plan, wish, &free).map_err(|error| self.nothing(wish, error))?;
        if self.ahead.is_empty() {
            return Ok(found);
        }
        let left = FreeIn {
            ahead: self.ahead,
            ..free
        };
        fit(self.plan, wish, &left).map_err(|_| ReserveError::Behind {
            wish: wish.text(),
            waiting: self.waiting(wish),
        })
    }

    /// Why nothing serves `wish`; `error` says what is free.
    fn nothing(&self, wish: &Wish, error: Error) -> ReserveError {
        let asked = || self.plan.devices.iter().filter(|split| wish.is_about(split));
        let claims = self.books.iter().flat_map(|book| &book.claims);
        let is_asked = |claim: &&Claim| asked().any(|split| claim.device.overlaps(&split.key));
        // A wish that can never be served has nothing to do with what others hold or wait for, nor with what is out of
        // service.
        if error.kind() == Kind::Usage {
            return ReserveError::NothingFits {
                error,
                held: Vec::new(),
                waiting: 0,
            };
        }
        let out: Vec<(Device, WhyOut)> = asked()
            .filter_map(|split| Some((split.device, self.why_out(&split.key)?)))
            .collect();
        let serve = wanted(self.plan, wish);
        if !serve.is_empty() && serve.iter().all(|one| self.why_out(&one.device).is_some()) {
            let others = self.in_service();
            return ReserveError::OutOfService { out, others };
        }
        if let Some(time) = self.reserved(wish) {
            return Refused::Reserved(Box::new(time)).into();
        }
        let error = out.iter().fold(error, |error, (device, why)| {
            error.and_hint(format_args!("{device}: {why}"))
        });
        let gone = asked().filter(|split| self.gone.contains(&split.key));
        let error = gone.fold(error, |error, split| {
            error.and_hint(format_args!("{} was destroyed meanwhile", split.device))
        });
        ReserveError::NothingFits {
            error,
            held: claims.filter(is_asked).cloned().collect(),
            waiting: self.waiting(wish),
        }
    }

    /// Why nothing new is given of a device.
    fn why_out(&self, key: &DeviceKey) -> Option<WhyOut> {
        let book = self.books.iter().find(|book| book.gpu == *key.gpu())?;
        book.why_out(key)
    }

    /// The reservation of another user without which `wish` could be served.
    fn reserved(&self, wish: &Wish) -> Option<ReservedTime> {
        if !self.books.iter().any(Book::has_times) {
            return None;
        }
        let mut books = self.books.clone();
        books.iter_mut().for_each(Book::asked_by_nobody);
        let draft = Draft { books, ..*self };
        let free = FreeIn {
            draft: &draft,
            ahead: &[],
            only_own_time: false,
        };
        let found = fit(self.plan, wish, &free).ok()?;
        let split = self.plan.split(found.device)?;
        let book = self.books.iter().find(|book| book.gpu == *split.key.gpu())?;
        let time = book.why_reserved(&split.key, &split.part(&found.shares), split.bounds());
        time.cloned()
    }

    /// The devices of the plan that are in service.
    fn in_service(&self) -> Vec<Device> {
        let in_service = |split: &&SplitDevice| self.why_out(&split.key).is_none();
        let devices = self.plan.devices.iter().filter(in_service);
        devices.map(|split| split.device).collect()
    }

    /// Whether a device exists, and it is known what is held of it.
    fn is_known(&self, split: &SplitDevice) -> bool {
        let is_damaged = self.damaged.iter().any(|book| book.may_be_of(split.key.gpu()));
        !is_damaged && !self.gone.contains(&split.key)
    }

    /// How many of those ahead wait for something that may serve `wish`.
    fn waiting(&self, wish: &Wish) -> usize {
        let wants = wanted(self.plan, wish);
        self.ahead.iter().filter(|waiter| waiter.competes(&wants)).count()
    }
}

/// What of a draft is free, and left by those `ahead`.
#[derive(Clone, Copy)]
struct FreeIn<'a> {
    draft: &'a Draft<'a>,
    ahead: &'a [Waiter],
    /// Only what is reserved now for the user who asks.
    only_own_time: bool,
}

impl Holds for FreeIn<'_> {
    fn is_free(&self, split: &SplitDevice, name: &ShareName) -> bool {
        let part = split.part(std::slice::from_ref(name));
        let mut books = self.draft.books.iter();
        let is_own_time = books.any(|book| book.gpu == *split.key.gpu() && book.is_own_time(&split.key, &part));
        let is_left = is_own_time || !self.ahead.iter().any(|waiter| waiter.wants(&split.key, &part));
        is_left
            && (is_own_time || !self.only_own_time)
            && self.draft.is_known(split)
            && InBooks::each(&self.draft.books).is_free(split, name)
    }

    fn named(&self, split: &SplitDevice) -> Vec<ShareName> {
        let waited = self.ahead.iter().flat_map(|waiter| waiter.named(&split.key));
        let held = InBooks::each(&self.draft.books).named(split);
        held.into_iter().chain(waited.cloned()).collect()
    }
}

/// What may serve `wish`, on each device of `plan`.
pub(super) fn wanted(plan: &Plan, wish: &Wish) -> Vec<WaitedFor> {
    // Other shares of the device do not serve it.
    let is_exact = wish.memory.is_none() && wish.compute.is_none() && wish.shares.is_none_or(|more| more == 0);
    let serves = |split: &&SplitDevice| {
        let of_it = Wish {
            device: Some(split.device),
            ..wish.clone()
        };
        wish.is_about(split) && fit(plan, &of_it, &Unused).is_ok()
    };
    let wanted = |split: &SplitDevice| WaitedFor {
        device: split.key.clone(),
        shares: if is_exact { wish.names.clone() } else { Vec::new() },
    };
    plan.devices.iter().filter(serves).map(wanted).collect()
}
