//! What users hold for longer than the policy lets them, on this machine.

use crate::accounts::{Account, Accounts};
use crate::held::{Held, HeldTooLong};
use tranche_core::ledger::Claim;
use tranche_plan::hold::Overdue;
use tranche_plan::policy::UserPolicy;

/// Whether `claim` is held for too long at `uptime` seconds since boot. Root's claims never are. It may ask NSS if the
/// policy has limits of time.
pub fn of<'c>(claim: &'c Claim, accounts: &Accounts, policy: &UserPolicy, uptime: u64) -> Option<Overdue<'c>> {
    if !policy.limits_time() || accounts.of(claim.uid) == Account::Owner {
        return None;
    }
    Overdue::of(claim, accounts.limits(claim.uid, policy).hold?, uptime)
}

/// Writes into `held`, which shows `claim`, whether it is held for too long.
pub fn show(held: &mut Held, claim: &Claim, accounts: &Accounts, policy: &UserPolicy, uptime: u64) {
    held.too_long = of(claim, accounts, policy, uptime).map(|overdue| HeldTooLong {
        by_seconds: overdue.by.as_secs(),
        limit: overdue.limit.from,
    });
}
