//! Which holder of a device that is given by turns a person means.

use super::Caller;
use super::meant::meant;
use crate::turns::TurnHolder;
use std::path::Path;
use tranche_core::claims::Claims;
use tranche_core::error::{Error, Result};
use tranche_core::ledger::{Books, Claim, Strategy};
use tranche_state::held::names::DeviceNames;

/// The holder that is meant by `what`. `names` are those of the devices.
///
/// # Errors
/// Returns an error if none is meant, if more than one is, or if nothing of it is held by turns.
pub fn turn_holder(state_dir: &Path, names: DeviceNames, caller: Caller, what: &str) -> Result<TurnHolder> {
    let claims = Claims::existing(state_dir)?;
    let books = claims
        .as_ref()
        .map(Claims::books)
        .transpose()?
        .unwrap_or_else(Books::default);
    let uptime = claims.as_ref().map_or(0, Claims::uptime);
    let mut view = caller.view(names, uptime);
    let seen: Vec<&Claim> = books.claims().filter(|claim| caller.sees(claim)).collect();
    let meant = meant(caller, what, &seen, &mut view)?;
    let by_turns = meant.iter().find(|claim| claim.part.strategy() == Strategy::Turns);
    let Some(claim) = by_turns else {
        let error = Error::failed(what, "is not held by turns");
        return Err(error.hint("sharing.turns in the policy gives a device by turns"));
    };
    let holders = TurnHolder::all(&books, &claim.device);
    let holder = holders.into_values().find(|holder| holder.claim.part == claim.part);
    holder.ok_or_else(|| Error::failed(what, "is not in use, so nothing of it can be suspended"))
}
