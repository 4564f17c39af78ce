//! Turns: the holders of a device have the whole of it, one after another, while the GPU memory of the others is in
//! host memory. This file decides whose turn it is; [`change`] makes the next holder resident.
//!
//! The rule:
//!
//! 1. One holder at most is *resident*: only that one can use the device. The others are *away*.
//! 2. A holder who is away and calls the driver *wants* the device, from then on until it is resident.
//! 3. If nobody is resident, the one who has wanted the device for the longest time becomes resident.
//! 4. The resident gives way to that one when it has done nothing for `idle`, or has been resident for `turn`. If it
//!    worked until then, it wants the device again at once, so it comes after all who want it already.
//! 5. A holder whom a person has put aside wants nothing until a person resumes it.
//! 6. After a change that failed, the resident stays, and the next attempt comes after 10 s, 20 s and so on, at most
//!    `turn`.
//!
//! What follows from it, and what the tests check: one at most is resident; two who both work change at most once in
//! `turn`; who wants the device waits for no longer than `turn` for each who wanted it earlier, the resident among
//! them, and the changes between them, if no change fails; and a device is not idle while somebody wants it for longer
//! than `idle`.

pub mod change;
pub mod drivers;
pub mod tries;

use std::collections::BTreeMap;
use std::time::Duration;

/// When the resident gives way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnTimes {
    /// For how long a holder is resident at most while others want the device.
    pub turn: Duration,
    /// For how long it does nothing at most while others want the device.
    pub idle: Duration,
}

/// The first time between a change that failed and the next attempt.
const FIRST_PAUSE: Duration = Duration::from_secs(10);

/// A device that its holders have by turns. `C` names a claim. Each time is since the boot.
#[derive(Debug, Clone)]
pub struct TurnDevice<C> {
    times: TurnTimes,
    holders: BTreeMap<C, Away>,
    resident: Option<Resident<C>>,
    failures: Option<Failures>,
    /// How many wishes there were.
    wishes: u64,
}

/// A holder while it is not resident.
#[derive(Debug, Clone, Copy, Default)]
struct Away {
    wish: Option<Wish>,
    /// A person has put it aside.
    is_put_aside: bool,
}

/// That a holder wants the device. The earlier one is the smaller one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Wish {
    since: Duration,
    /// Of two that began at one time, the first one has the smaller number.
    number: u64,
}

#[derive(Debug, Clone)]
struct Resident<C> {
    claim: C,
    since: Duration,
    worked: Duration,
}

/// The changes that failed one after another.
#[derive(Debug, Clone, Copy)]
struct Failures {
    pause: Duration,
    until: Duration,
}

/// Who gives the device to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handover<C> {
    /// The resident, if there is one.
    pub from: Option<C>,
    /// Who becomes resident; `None` if the resident is put aside and nobody wants the device.
    pub to: Option<C>,
}

impl<C: Clone + Ord> TurnDevice<C> {
    /// A device without holders.
    pub fn new(times: TurnTimes) -> Self {
        Self {
            times,
            holders: BTreeMap::new(),
            resident: None,
            failures: None,
            wishes: 0,
        }
    }

    /// Adds a holder as an earlier program knew it: since when it has wanted the device, and whether a person has put
    /// it aside. One who is known already stays as it is.
    pub fn enter_again(&mut self, claim: C, wants_since: Option<Duration>, is_put_aside: bool) {
        let wish = wants_since.map(|since| self.wish(since));
        self.holders.entry(claim).or_insert(Away { wish, is_put_aside });
    }

    /// Makes a holder resident that is resident already, as an earlier program made it: from `now` on it has a turn.
    pub fn is_resident(&mut self, claim: &C, now: Duration) {
        if let Some(away) = self.holders.get_mut(claim) {
            away.wish = None;
            self.resident = Some(Resident {
                claim: claim.clone(),
                since: now,
                worked: now,
            });
        }
    }

    /// All holders.
    pub fn holders(&self) -> impl Iterator<Item = &C> {
        self.holders.keys()
    }

    /// Whether a person has put a holder aside.
    pub fn is_put_aside(&self, claim: &C) -> bool {
        self.holders.get(claim).is_some_and(|away| away.is_put_aside)
    }

    /// Changes when the resident gives way.
    pub fn set_times(&mut self, times: TurnTimes) {
        self.times = times;
    }

    /// Adds a holder, who wants nothing yet.
    pub fn enter(&mut self, claim: C) {
        self.holders.entry(claim).or_default();
    }

    /// Removes a holder whose claim has ended.
    pub fn leave(&mut self, claim: &C) {
        self.holders.remove(claim);
        if self.resident() == Some(claim) {
            self.resident = None;
            self.failures = None;
        }
    }

    /// The holder who can use the device.
    pub fn resident(&self) -> Option<&C> {
        self.resident.as_ref().map(|resident| &resident.claim)
    }

    /// Since when a holder has wanted the device. The resident wants nothing.
    pub fn wants_since(&self, claim: &C) -> Option<Duration> {
        Some(self.holders.get(claim)?.wish?.since)
    }

    /// A holder has called the driver at `now`.
    pub fn call(&mut self, claim: &C, now: Duration) {
        if self.resident() == Some(claim) {
            return self.work(now);
        }
        let wish = self.wish(now);
        if let Some(away) = self.holders.get_mut(claim).filter(|away| !away.is_put_aside) {
            away.wish.get_or_insert(wish);
        }
    }

    /// The resident works at `now`.
    pub fn work(&mut self, now: Duration) {
        if let Some(resident) = &mut self.resident {
            resident.worked = resident.worked.max(now);
        }
    }

    /// A holder that is away wants the device no more, until its next call.
    pub fn want_nothing(&mut self, claim: &C) {
        if let Some(away) = self.holders.get_mut(claim) {
            away.wish = None;
        }
    }

    /// A person has put a holder aside: it gives way at once if it is resident, and wants nothing until it is resumed.
    pub fn put_aside(&mut self, claim: &C) {
        if let Some(away) = self.holders.get_mut(claim) {
            *away = Away {
                wish: None,
                is_put_aside: true,
            };
        }
    }

    /// A person has resumed a holder, who wants the device from `now` on.
    pub fn resume(&mut self, claim: &C, now: Duration) {
        if let Some(away) = self.holders.get_mut(claim) {
            away.is_put_aside = false;
        }
        self.call(claim, now);
    }

    /// Who gives the device to whom at `now`, if anybody does. Ask again at [`Self::due`], and after each call here.
    pub fn next(&self, now: Duration) -> Option<Handover<C>> {
        let is_paused = self.failures.is_some_and(|failures| now < failures.until);
        let to = self.first().cloned();
        let from = self.resident.as_ref();
        let gives_way = match from {
            None => to.is_some(),
            Some(resident) if self.is_put_aside(&resident.claim) => true,
            Some(resident) => to.is_some() && now >= self.end_of_turn(resident),
        };
        (gives_way && !is_paused).then(|| Handover {
            from: from.map(|resident| resident.claim.clone()),
            to,
        })
    }

    /// When [`Self::next`] has another answer, if nothing else happens.
    pub fn due(&self) -> Option<Duration> {
        let waits = match &self.resident {
            Some(resident) if !self.is_put_aside(&resident.claim) => {
                self.first().map(|_| self.end_of_turn(resident))?
            }
            None if self.first().is_none() => return None,
            Some(_) | None => Duration::ZERO,
        };
        Some(self.failures.map_or(waits, |failures| waits.max(failures.until)))
    }

    /// The handover is complete at `now`.
    pub fn complete(&mut self, handover: &Handover<C>, now: Duration) {
        if let Some(before) = self.resident.take() {
            let was_busy = now.saturating_sub(before.worked) < self.times.idle;
            let wish = was_busy.then(|| self.wish(now));
            if let Some(away) = self.holders.get_mut(&before.claim).filter(|away| !away.is_put_aside) {
                away.wish = wish;
            }
        }
        self.failures = None;
        if let Some(to) = &handover.to {
            // Its claim may have ended meanwhile.
            self.is_resident(to, now);
        }
    }

    /// The handover failed at `now`, and the resident is as it was.
    pub fn fail(&mut self, now: Duration) {
        let pause = self.failures.map_or(FIRST_PAUSE, |failures| failures.pause * 2);
        let pause = pause.min(self.times.turn.max(FIRST_PAUSE));
        self.failures = Some(Failures {
            pause,
            until: now + pause,
        });
    }

    /// A wish that begins at `now`, after all others.
    fn wish(&mut self, now: Duration) -> Wish {
        self.wishes += 1;
        Wish {
            since: now,
            number: self.wishes,
        }
    }

    /// Who has wanted the device for the longest time.
    fn first(&self) -> Option<&C> {
        self.waiting().min().map(|(_, claim)| claim)
    }

    /// All who want the device, in no order.
    fn waiting(&self) -> impl Iterator<Item = (Wish, &C)> {
        self.holders
            .iter()
            .filter_map(|(claim, away)| Some((away.wish?, claim)))
    }

    /// When the resident gives way if somebody wants the device.
    fn end_of_turn(&self, resident: &Resident<C>) -> Duration {
        (resident.since + self.times.turn).min(resident.worked + self.times.idle)
    }
}

#[cfg(test)]
mod tests;
