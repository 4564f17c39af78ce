//! A device that was just made for somebody: it is reserved before anybody can see it, until that one claims it.

use super::Claims;
use crate::ledger::{Ask, Book, Bounds, Change, Claim, ClaimState, HeldPart, Holder, LedgerResult, start_name};
use crate::types::DeviceKey;

/// What people see in place of the name under which it was asked for; for whom follows.
const JUST_MADE: &str = "an instance that was just made for ";

/// How many seconds the one for whom it was made has to claim it.
const TO_CLAIM: u64 = 30;

/// For whom the device was just made that `claim` reserves; `None` for any other claim.
pub fn just_made_for(claim: &Claim) -> Option<&str> {
    let is_it = claim.holder == Holder::Person && claim.process.is_none();
    claim.asked_as.as_deref()?.strip_prefix(JUST_MADE).filter(|_| is_it)
}

impl Claims {
    /// Reserves `device`, which was made for somebody (`whom`) who claims it soon.
    ///
    /// # Errors
    /// Returns who has taken it, or what is wrong with the ledger.
    pub fn hold_made(&self, device: &DeviceKey, whom: &str) -> LedgerResult<()> {
        let ask = Ask {
            device: device.clone(),
            part: HeldPart::Whole,
            bounds: Bounds::default(),
            asked_as: Some(format!("{JUST_MADE}{whom}")),
            spec_file: None,
            name: Some(start_name()?),
            holder: Holder::Person,
            process: None,
            state: ClaimState::Reserved,
            once: true,
            for_root: false,
            alone: false,
            uid: self.uid,
            ttl: Some(TO_CLAIM),
        };
        self.lock()?.locked.change(device, |book| {
            book.take(&ask, &self.machine)?;
            Ok(((), Change::Made))
        })
    }

    /// Ends that, because the one for whom `device` was made does not get it.
    ///
    /// # Errors
    /// Returns what is wrong with the ledger.
    pub fn leave_made(&self, device: &DeviceKey) -> LedgerResult<()> {
        self.lock()?.locked.change(device, |book| {
            make_way(book, device);
            Ok(((), Change::Made))
        })
    }
}

/// Lets the one for whom `device` was made have it.
pub fn make_way(book: &mut Book, device: &DeviceKey) {
    book.claims
        .retain(|claim| claim.device != *device || just_made_for(claim).is_none());
}
