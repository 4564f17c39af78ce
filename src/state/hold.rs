//! What users hold for longer than the policy lets them, or without using it, on this machine.

use crate::accounts::{Account, Accounts};
use crate::held::not_ended::NotEnded;
use crate::held::{Held, HeldIdle, HeldTooLong};
use tranche_core::ledger::Claim;
use tranche_plan::hold::{self, Overdue};
use tranche_plan::idle::Idleness;
use tranche_plan::policy::{Sourced, TimeLimit, UserLimits, UserPolicy};

/// The limits of time of a policy, at a moment.
#[derive(Debug, Clone, Copy)]
pub struct TimeLimits<'a> {
    /// Who is whom. NSS may be asked if the policy has limits of time.
    pub accounts: &'a Accounts,
    /// The policy.
    pub policy: &'a UserPolicy,
    /// Seconds since boot.
    pub uptime: u64,
}

impl TimeLimits<'_> {
    /// The limits that count for the user of `claim`; `None` for root's claims, which have none.
    fn of_user(&self, claim: &Claim) -> Option<UserLimits> {
        if !self.policy.limits_time() || self.accounts.of(claim.uid) == Account::Owner {
            return None;
        }
        Some(self.accounts.limits(claim.uid, self.policy))
    }

    /// For how long `claim` may do nothing.
    pub fn idle(&self, claim: &Claim) -> Option<Sourced<TimeLimit>> {
        self.of_user(claim)?.idle
    }

    /// Which limits `claim` exceeds.
    pub fn exceeded<'c>(&self, claim: &'c Claim, idleness: &Idleness) -> Vec<Overdue<'c>> {
        let Some(limits) = self.of_user(claim) else {
            return Vec::new();
        };
        let held = limits.hold.and_then(|limit| Overdue::held(claim, limit, self.uptime));
        let idle = limits.idle.and_then(|limit| {
            let lasted = idleness.of(&hold::key(claim), self.uptime)?;
            Overdue::idle(claim, limit, lasted.ok()?)
        });
        held.into_iter().chain(idle).collect()
    }

    /// Writes into `held`, which shows `claim`, whether it is held for too long, for how long it is idle, and why it
    /// cannot be ended.
    pub fn show(&self, held: &mut Held, claim: &Claim, idleness: &Idleness, not_ended: &NotEnded) {
        let Some(limits) = self.of_user(claim) else { return };
        held.cannot_be_ended = not_ended.get(&hold::key(claim)).cloned();
        let too_long = limits.hold.and_then(|limit| Overdue::held(claim, limit, self.uptime));
        held.too_long = too_long.map(|overdue| HeldTooLong {
            by_seconds: overdue.by.as_secs(),
            limit: overdue.limit.from,
        });
        let lasted = idleness.of(&hold::key(claim), self.uptime);
        held.idle = limits.idle.zip(lasted).map(|(limit, lasted)| {
            let from = limit.from.clone();
            let overdue = lasted.ok().and_then(|lasted| Overdue::idle(claim, limit, lasted));
            HeldIdle {
                seconds: lasted.ok().map(|lasted| lasted.as_secs()),
                unknown: lasted.err().map(str::to_owned),
                by_seconds: overdue.map(|overdue| overdue.by.as_secs()),
                limit: from,
            }
        });
    }
}
