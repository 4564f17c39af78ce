//! How long claims have worked, for the history: from the looks at those that may not be idle for ever.

use super::ClaimKey;
use std::collections::BTreeMap;
use tranche_core::claims::Claims;
use tranche_core::error::Result;
use tranche_core::ledger::Claim;
use tranche_core::ledger::events::EventKind;
use tranche_plan::hold;
use tranche_plan::idle::{SPAN, Work};

/// After how many seconds it is recorded: 288 lines a day for a claim that works.
const RECORDED_EACH: u64 = 300;

/// What has worked and is not recorded yet.
#[derive(Debug, Default)]
pub(super) struct Busy {
    looked: Option<u64>,
    recorded: u64,
    seconds: BTreeMap<ClaimKey, (Claim, u64)>,
}

impl Busy {
    /// Takes in what was found `now`, in seconds since boot. A time in which nobody looked counts as none.
    pub(super) fn look(&mut self, now: u64, found: &[(&Claim, Work)], claims: &Claims) -> Result<()> {
        let passed = self.looked.replace(now).and_then(|looked| now.checked_sub(looked));
        let passed = passed.filter(|passed| *passed <= SPAN).unwrap_or(0);
        for (claim, _) in found.iter().filter(|(_, work)| *work == Work::Done) {
            let key = hold::key(claim);
            self.seconds.entry(key).or_insert_with(|| ((*claim).clone(), 0)).1 += passed;
        }
        if now.saturating_sub(self.recorded) >= RECORDED_EACH {
            self.recorded = now;
            if !self.seconds.is_empty() {
                let locked = claims.lock()?;
                for (claim, seconds) in std::mem::take(&mut self.seconds).into_values() {
                    locked.ledger().note(EventKind::Busy, seconds, &claim);
                }
            }
        }
        Ok(())
    }
}
