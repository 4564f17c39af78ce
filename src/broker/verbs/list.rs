//! `claim list` and `claim show`: claims that were made beforehand, and what `tranche run` holds.

use super::Caller;
use std::path::Path;
use tranche_core::claims::Claims;
use tranche_core::error::{Error, Result};
use tranche_plan::policy::UserPolicy;
use tranche_state::accounts::Accounts;
use tranche_state::held::names::DeviceNames;
use tranche_state::held::{Held, HeldTurn, idleness, not_ended};
use tranche_state::hold::TimeLimits;

/// What is held.
#[derive(Debug, Default)]
pub struct ListedClaims {
    /// What of it the caller may see.
    pub claims: Vec<Held>,
    /// The parts of the ledger that cannot be read.
    pub unreadable: Vec<Error>,
}

/// What the caller may see of what is held in the ledger in `state_dir`, in the order of the ledger, with the limits of
/// time of `policy` for it.
///
/// # Errors
/// Returns an error if the ledger cannot be listed.
pub fn list(
    state_dir: &Path,
    caller: Caller,
    names: DeviceNames,
    policy: &UserPolicy,
    accounts: &Accounts,
) -> Result<ListedClaims> {
    let Some(claims) = Claims::existing(state_dir)? else {
        return Ok(ListedClaims::default());
    };
    let books = claims.books()?;
    let limits = TimeLimits {
        accounts,
        policy,
        uptime: claims.uptime(),
    };
    let idleness = idleness::read(state_dir)?;
    let not_ended = not_ended::read(state_dir)?;
    let mut view = caller.view(names, claims.uptime());
    let seen = books.claims().filter(|claim| caller.sees(claim));
    let seen = seen.map(|claim| {
        let mut held = view.held(claim);
        limits.show(&mut held, claim, &idleness, &not_ended);
        held.turn = HeldTurn::of(claim, state_dir, caller == Caller::Root)?;
        Ok(held)
    });
    Ok(ListedClaims {
        claims: seen.collect::<Result<_>>()?,
        unreadable: books.damaged.into_iter().map(|book| book.error).collect(),
    })
}
