//! What is reserved for later, and keeps a part of a GPU from others.

use super::Book;
use crate::ledger::calendar::{Asker, NearTime, NearTimes, ReservedTime};
use crate::ledger::fit;
use crate::types::{Bounds, DeviceKey, HeldPart, HeldShare};

impl Book {
    /// The same book, which keeps what is reserved for those who have reserved it.
    #[must_use]
    pub fn with_times(self, times: NearTimes) -> Self {
        Self { times, ..self }
    }

    /// Says for whom it is asked what is free: for `uid`, whose hold is known to end after `ends_within` seconds;
    /// `None`
    /// where nothing ends it.
    pub fn asked_by(&mut self, uid: u32, ends_within: Option<u64>) {
        self.times.asker = Some(Asker { uid, ends_within });
    }

    /// Says that it is asked for nobody: nothing counts as reserved.
    pub fn asked_by_nobody(&mut self) {
        self.times.asker = None;
    }

    /// The reservation that keeps `part` of `device` from whom the book is [asked by](Book::asked_by); `None` if there
    /// is none.
    pub fn why_reserved(&self, device: &DeviceKey, part: &HeldPart, bounds: Bounds) -> Option<&ReservedTime> {
        let asker = self.times.asker?;
        let own_until = self.own_times(asker, device, part).map(|time| time.until).max();
        // Until its end, a user's own time goes before what comes after it.
        let comes_after_own = |time: &ReservedTime| own_until.is_some_and(|until| time.from >= until);
        let barring = self.times.barring(asker).filter(|near| !self.is_given_up(near));
        let barring = barring.map(|near| &near.time).filter(|time| !comes_after_own(time));
        let barring: Vec<&ReservedTime> = barring.collect();
        if let Some(first) = barring.iter().find(|time| time.overlaps(device, part)) {
            return Some(first);
        }
        // What is reserved and not held yet is to fit later. What its holder has is counted as held.
        let is_to_come = |time: &&&ReservedTime| !self.held().any(|(device, part)| time.overlaps(device, part));
        let to_come: Vec<&ReservedTime> = barring.iter().filter(is_to_come).copied().collect();
        let first = *to_come.first()?;
        let later = to_come.iter().map(|time| (&time.device, &time.part));
        let fits_now = fit::fits(device, part, bounds, self.held()).is_ok();
        let is_in_the_way = fits_now && fit::fits(device, part, bounds, self.held().chain(later)).is_err();
        is_in_the_way.then_some(first)
    }

    /// Whether all of `part` of `device` is reserved now for whom the book is asked by. Then those who wait for it come
    /// later.
    pub fn is_own_time(&self, device: &DeviceKey, part: &HeldPart) -> bool {
        let asker = self.times.asker;
        asker.is_some_and(|asker| self.own_times(asker, device, part).next().is_some())
    }

    /// The reservations of `asker` with all of `part` of `device`, whose time has come or is near.
    fn own_times(&self, asker: Asker, device: &DeviceKey, part: &HeldPart) -> impl Iterator<Item = &ReservedTime> {
        let own = self.times.near.iter().filter(move |near| near.time.uid == asker.uid);
        let covering = own.filter(|near| near.time.covers(device, part) && !self.is_given_up(near));
        covering.map(|near| &near.time)
    }

    /// The shares of `device` that are reserved now or soon, for anybody.
    pub fn reserved_shares(&self, device: &DeviceKey) -> impl Iterator<Item = &HeldShare> {
        let near = self.times.near.iter().map(|near| &near.time);
        near.filter(move |time| time.device == *device)
            .flat_map(|time| time.part.shares())
    }

    /// Whether something is reserved of it now or soon.
    pub fn has_times(&self) -> bool {
        !self.times.near.is_empty()
    }

    /// Whether the reservation with this number is given up, because its user has not come in time.
    pub fn has_given_up(&self, id: u32) -> bool {
        let mut near = self.times.near.iter();
        near.any(|near| near.time.id == id && self.is_given_up(near))
    }

    /// Reads the claims by which it is known whether reservations are used.
    pub(super) fn read_users_of_times(&mut self) {
        let unused: Vec<ReservedTime> = {
            let near = self.times.near.iter().filter(|near| near.is_unused);
            near.map(|near| near.time.clone()).collect()
        };
        if !unused.is_empty() {
            // A damaged line still says what is held.
            let _: Result<(), _> = self.read(|device, part, _| unused.iter().any(|time| time.overlaps(device, part)));
        }
    }

    /// Whether the user of a reservation has not come in time.
    fn is_given_up(&self, near: &NearTime) -> bool {
        near.is_unused && !self.is_used_by_claim(near)
    }

    /// Whether its user holds something of it that was taken in time: what is taken later binds nobody.
    fn is_used_by_claim(&self, NearTime { time, .. }: &NearTime) -> bool {
        let is_use = |claim: &super::Claim| {
            claim.uid == time.uid
                && claim.since < time.from.saturating_add(time.no_show)
                && time.overlaps(&claim.device, &claim.part)
        };
        self.claims.iter().any(is_use)
    }

    /// Notes which reservations of `uid` are used by a claim on `part` of `device`.
    pub(super) fn note_use(&mut self, uid: u32, device: &DeviceKey, part: &HeldPart) {
        let used = self.times.near.iter();
        let used =
            used.filter(|near| near.time.uid == uid && near.time.overlaps(device, part) && !self.is_given_up(near));
        let used: Vec<u32> = used.map(|near| near.time.id).collect();
        self.times.begun.extend(used);
    }

    /// Notes which reservations are used by what is held now: what was taken before its time may be released in it.
    pub(in crate::ledger) fn note_held(&mut self) {
        let is_held = |near: &&NearTime| near.time.from <= self.times.now && self.is_used_by_claim(near);
        let used: Vec<u32> = self
            .times
            .near
            .iter()
            .filter(is_held)
            .map(|near| near.time.id)
            .collect();
        self.times.begun.extend(used);
    }

    /// The reservations that were used since the book was read, by number.
    pub(in crate::ledger) fn begun(&self) -> impl Iterator<Item = u32> + '_ {
        self.times.begun.iter().copied()
    }
}
