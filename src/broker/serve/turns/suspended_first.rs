//! Before this program ends a holder, its work is suspended, on drivers that let the machine hang when resumed work is
//! killed ([`tranche_plan::turns::drivers::hangs`]).

use super::TurnDesk;
use crate::serve::commands::Commands;
use crate::turns::TurnHolder;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tranche_core::claims::Claims;
use tranche_core::error::line;
use tranche_core::ledger::{Claim, Strategy};
use tranche_core::types::DeviceKey;
use tranche_plan::hold;
use tranche_plan::turns::drivers;
use tranche_state::mutex::lock;
use tranche_state::turns::{ClaimKey, TurnRecord};

/// For how long nobody resumes a holder that was about to be ended. It is looked at again within this time.
const LASTS: Duration = Duration::from_secs(120);

/// Holders that are about to be ended.
#[derive(Default)]
pub(super) struct BeforeEnd(BTreeMap<(DeviceKey, ClaimKey), AboutToEnd>);

struct AboutToEnd {
    /// The look after which nothing counts that was asked before.
    look: u64,
    at: Instant,
}

impl BeforeEnd {
    /// Whether a holder is about to be ended.
    pub(super) fn has(&self, device: &DeviceKey, claim: &ClaimKey) -> bool {
        let known = self.0.get(&(device.clone(), claim.clone()));
        known.is_some_and(|known| known.at.elapsed() < LASTS)
    }
}

impl TurnDesk {
    /// Asks for a holder to be suspended. Returns whether all that was asked before was done.
    fn suspend_before_end(&self, device: DeviceKey, claim: ClaimKey) -> bool {
        let mut state = lock(&self.state);
        let (next, over) = (state.begun + 1, state.over);
        state.asked.push((device.clone(), claim.clone(), true));
        let known = &mut state.before_end.0;
        known.retain(|_, one| one.at.elapsed() < LASTS);
        let at = Instant::now();
        let one = known.entry((device, claim)).or_insert(AboutToEnd { look: next, at });
        one.at = at;
        let is_looked_at = over >= one.look;
        drop(state);
        self.wake();
        is_looked_at
    }
}

/// Lets the work of a claim be suspended that is about to be ended, if it needs that.
///
/// # Errors
/// Returns why it must not be ended yet. Nothing is waited for here: ask again later.
pub(in crate::serve) fn suspended_first(commands: &Commands<'_>, claims: &Claims, claim: &Claim) -> Result<(), String> {
    if claim.part.strategy() != Strategy::Turns {
        return Ok(());
    }
    let facts = commands.facts().map_err(|error| line(&error))?;
    let driver = facts.inventory.driver.as_ref();
    let Some(hangs) = driver.and_then(|driver| drivers::hangs(&driver.version)) else {
        return Ok(());
    };
    let device = &claim.device;
    let books = claims.books().map_err(|error| error.to_string())?;
    let holders = TurnHolder::all(&books, device);
    // That of the first container, where several use the claim.
    let holder = holders.into_values().find(|holder| holder.claim.part == claim.part);
    let key = hold::key(holder.as_ref().map_or(claim, |holder| &holder.claim));
    let record = TurnRecord::read(commands.state_dir(), device).map_err(|error| line(&error))?;
    let is_changing = record.change.as_ref().is_some_and(|change| change.is_of(&key));
    let known = record.holders.get(&key);
    if !is_changing && !known.is_some_and(|known| known.was_resumed) {
        return Ok(());
    }
    let is_looked_at = commands.turns.suspend_before_end(device.clone(), key.clone());
    let is_away = !is_changing && !record.is_resident(&key) && known.is_some_and(|known| known.is_put_aside);
    match is_looked_at && is_away {
        true => Ok(()),
        false => {
            let trouble = record
                .trouble_for(&key)
                .map(|why| format!("; {why}"))
                .unwrap_or_default();
            Err(format!("{hangs}, so it is suspended first{trouble}"))
        }
    }
}
