//! What is reserved for later, as the oracle knows it. Time passes in slots of ten minutes, and only by jumps of the
//! clock: it always says the middle of a slot, and everything else is at the end of one.

use crate::machine::PARTS;
use crate::operation::What;
use crate::oracle::{Checked, broken};

/// Seconds of a slot.
pub(crate) const SLOT: u64 = 600;

/// The slot in which each life begins.
pub(crate) const FIRST: u32 = 200;

/// `before` and `noShow` of the policy, in slots.
pub(crate) const BEFORE: u32 = 3;
pub(crate) const NO_SHOW: u32 = 2;

/// Something that is reserved, or may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reserved {
    /// Its number; `None` while nobody has said it.
    pub(crate) id: Option<u32>,
    pub(crate) who: u32,
    pub(crate) gpu: u8,
    /// The number of shares; 0 for the whole GPU.
    pub(crate) shares: u8,
    /// The slot in which it begins, and the first one after it.
    pub(crate) from: u32,
    pub(crate) until: u32,
    /// It was said that it is reserved. Otherwise nobody knows.
    pub(crate) is_sure: bool,
    /// Its user may have used it, so that it is not given up.
    pub(crate) may_be_used: bool,
}

/// All that is reserved, and the time.
#[derive(Debug)]
pub(crate) struct Times {
    pub(crate) all: Vec<Reserved>,
    /// The slot of the clock.
    pub(crate) slot: u32,
    /// The slot of the last change of the calendar, at least and at most. A clock that is behind it is not believed.
    pub(crate) changed: (u32, u32),
    /// Whether the machine has run for longer than `noShow`: before that, nothing is given up.
    pub(crate) gives_up: bool,
}

impl Times {
    /// Nothing is reserved.
    pub(crate) fn new() -> Self {
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let seconds: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
        Self {
            all: Vec::new(),
            slot: FIRST,
            changed: (0, 0),
            gives_up: seconds > (u64::from(NO_SHOW) * SLOT) as f64,
        }
    }

    /// The slot that counts, at least and at most.
    fn now(&self) -> (u32, u32) {
        (self.slot.max(self.changed.0), self.slot.max(self.changed.1))
    }

    /// Whether the calendar cannot be changed, or may be so.
    pub(crate) fn is_behind(&self) -> bool {
        self.slot < self.changed.1
    }

    /// Whether its time, or that before it, may have come.
    fn may_be_near(&self, one: &Reserved) -> bool {
        let (least, most) = self.now();
        let is_given_up =
            self.gives_up && one.is_sure && !one.may_be_used && least >= one.from + NO_SHOW && one.shares == 0;
        most + BEFORE >= one.from && least < one.until && !is_given_up
    }

    /// Whether its time, or that before it, has come, and it cannot be given up.
    fn is_near(&self, one: &Reserved) -> bool {
        let (least, most) = self.now();
        one.is_sure && least + BEFORE >= one.from && most < one.until && most < one.from + NO_SHOW
    }

    /// How many shares of a GPU may be kept from `who`, or whether the GPU is.
    pub(crate) fn may_be_kept(&self, gpu: u8, who: u32) -> u8 {
        let near = self
            .all
            .iter()
            .filter(|one| one.gpu == gpu && one.who != who && self.may_be_near(one));
        near.map(|one| one.shares.max(1)).sum()
    }

    /// The GPUs that are kept from `who` as a whole. Until the end of a time of one's own, nothing is kept for the next
    /// one.
    pub(crate) fn kept(&self, who: u32) -> Vec<u8> {
        let near = self
            .all
            .iter()
            .filter(|one| one.who != who && one.shares == 0 && self.is_near(one));
        let is_before = |own: &Reserved, other: &Reserved| {
            own.who == who && own.gpu == other.gpu && own.shares == 0 && own.from < other.from && self.may_be_near(own)
        };
        near.filter(|other| !self.all.iter().any(|own| is_before(own, other)))
            .map(|one| one.gpu)
            .collect()
    }

    /// Whether the GPU is kept for `who`, before all who wait.
    pub(crate) fn is_own(&self, what: What, who: u32) -> bool {
        let is_own = |one: &Reserved| one.who == who && What::Whole(one.gpu) == what && one.shares == 0;
        self.all.iter().any(|one| is_own(one) && self.is_near(one))
    }

    /// What `who` has, or asks for, may be the use of a reservation.
    pub(crate) fn may_be_used(&mut self, what: What, who: u32) {
        let near: Vec<bool> = self.all.iter().map(|one| self.may_be_near(one)).collect();
        for (one, is_near) in self.all.iter_mut().zip(near) {
            let is_on = match what {
                What::Shares(gpu, _) | What::Whole(gpu) => gpu == one.gpu,
                What::Any => true,
                What::Instance(_) => false,
            };
            one.may_be_used |= is_near && is_on && one.who == who;
        }
    }

    /// What was said to be reserved is not more than there is.
    pub(crate) fn reserved(&self, new: &Reserved) -> Checked {
        let beside = |at: u32| {
            let sure = self.all.iter().filter(move |one| one.is_sure && one.gpu == new.gpu);
            sure.filter(move |one| one.from <= at && at < one.until)
        };
        for at in new.from..new.until {
            let shares: u8 = beside(at).map(|one| one.shares).sum();
            let is_whole = beside(at).any(|one| one.shares == 0);
            let is_too_much = new.shares == 0 && beside(at).next().is_some() || is_whole || shares + new.shares > PARTS;
            if is_too_much {
                return broken("reserved twice", format!("{new:?} beside {:?}", self.all));
            }
        }
        Ok(())
    }

    /// Whether nothing of the GPU is reserved, or may be.
    pub(crate) fn is_unreserved(&self, gpu: u8) -> bool {
        self.all.iter().all(|one| one.gpu != gpu)
    }

    /// The calendar was changed, or may have been.
    pub(crate) fn change(&mut self, is_sure: bool) {
        self.changed.1 = self.changed.1.max(self.slot);
        if is_sure {
            self.changed.0 = self.changed.0.max(self.slot);
        }
    }
}
