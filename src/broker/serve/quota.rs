//! How much users other than root may hold: each account, and all of them together.

use super::commands::Commands;
use super::peer::BrokerClient;
use crate::facts::Facts;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use tranche_core::claims::Claims;
use tranche_core::error::{Error, Result};
use tranche_core::ledger::{Books, Claim};
use tranche_core::types::DeviceKey;
use tranche_plan::policy::{Sourced, UserLimits};
use tranche_plan::share::{Plan, SplitDevice};
use tranche_state::accounts::{Account, Accounts};
use tranche_state::mutex::lock;

/// The limits of one client, whose account was asked for.
pub(super) struct ClientQuota<'a> {
    account: Account,
    uid: u32,
    accounts: &'a Accounts,
    commands: &'a Commands<'a>,
    rules: RefCell<QuotaRules>,
}

/// What limits an account.
struct QuotaRules {
    facts: Arc<Facts>,
    limits: UserLimits,
}

impl<'a> ClientQuota<'a> {
    /// The limits of `peer`. It may ask NSS for the users of all claims, so nobody may wait for the caller: it has no
    /// lock of the ledger.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read.
    pub(super) fn of(commands: &'a Commands<'a>, peer: &BrokerClient, claims: &Claims) -> Result<Self> {
        let accounts = commands.accounts;
        let facts = commands.facts()?;
        // Each is asked for once, and nobody waits for NSS here but those who ask for it.
        let holders: BTreeSet<u32> = {
            let _one_at_a_time = lock(&commands.reading);
            claims.books()?.claims().map(|claim| claim.uid).collect()
        };
        for uid in holders {
            accounts.of(uid);
        }
        Ok(Self {
            account: accounts.of(peer.uid),
            uid: peer.uid,
            accounts,
            commands,
            rules: RefCell::new(QuotaRules {
                limits: accounts.limits(peer.uid, &facts.plan.users),
                facts,
            }),
        })
    }

    /// The host as it is now.
    ///
    /// # Errors
    /// Returns an error if it cannot be examined.
    pub(super) fn facts_now(&self) -> Result<Arc<Facts>> {
        self.commands.facts()
    }

    /// Takes the limits of the policy of now, which may be another one than when the client began to wait. As
    /// [`ClientQuota::of`], the caller has no lock of the ledger.
    pub(super) fn renew(&self) {
        let is_known = |facts: &Arc<Facts>| Arc::ptr_eq(facts, &self.rules.borrow().facts);
        // While the host cannot be examined, the earlier limits count.
        if let Some(facts) = self.commands.facts().ok().filter(|facts| !is_known(facts)) {
            let limits = self.accounts.limits(self.uid, &facts.plan.users);
            self.rules.replace(QuotaRules { facts, limits });
        }
    }

    /// Refuses `more` shares of `device`, in addition to what is held in `books`, if they are more than the policy lets
    /// this account hold, or all users together. No shares are the whole device.
    ///
    /// # Errors
    /// Returns the refusal.
    pub(super) fn allow(&self, books: &Books, device: &DeviceKey, more: usize) -> Result<()> {
        if self.account == Account::Owner {
            return Ok(());
        }
        let rules = self.rules.borrow();
        let plan = &rules.facts.plan;
        let (mut own, mut own_devices, mut all) = (0, 0, 0);
        for claim in books.claims() {
            // A user who came after the accounts were read was looked up by the thread of that connection.
            let account = self.accounts.already_known(claim.uid);
            if account == self.account {
                own += count(claim);
                own_devices += usize::from(claim.part.shares().is_empty());
            }
            all += if account == Account::Owner {
                0
            } else {
                taken_by(claim, plan)
            };
        }
        let limit = rules.limits.shares.clone().unwrap_or_else(|| Sourced {
            value: plan.quota.shares,
            from: "sharing.quota".to_owned(),
        });
        // First: a user who may hold no whole device need not release shares.
        if let Some(limit) = rules.limits.devices.as_ref().filter(|_| more == 0) {
            self.check(limit, "whole devices", own_devices, 1)?;
        }
        self.check(&limit, "shares", own, more.max(1))?;
        let most = most_of_all(plan);
        let asked = taken(plan, device, more);
        if asked.saturating_add(all) > most {
            let what = format!("may hold {most} shares together, hold {all}, and this one asks for {asked} more");
            return Err(Error::failed("users other than root", what)
                .hint("try again when something was released; root sets sharing.quota.all in the policy"));
        }
        Ok(())
    }

    /// Whether [`ClientQuota::allow`] would allow it if nothing were held.
    pub(super) fn may_allow(&self, device: &DeviceKey, more: usize) -> bool {
        self.allow(&Books::default(), device, more).is_ok()
    }

    /// Refuses `asked` more of `what` than `limit` lets this account hold, which holds `own`.
    fn check(&self, limit: &Sourced<u32>, what: &str, own: usize, asked: usize) -> Result<()> {
        let Sourced { value: most, from } = limit;
        if asked.saturating_add(own) <= usize::try_from(*most).unwrap_or(usize::MAX) {
            return Ok(());
        }
        let refused = format!("may hold {most} {what}, holds {own} and asks for {asked} more");
        let hint = format!("release some; tranche claim list shows them; root sets {from} in the policy");
        Err(Error::failed(self.who(), refused).hint(hint))
    }

    fn who(&self) -> String {
        match self.account {
            Account::User(uid) if uid == self.uid => format!("user {uid}"),
            account => format!("user {} (counted with {account})", self.uid),
        }
    }
}

/// How many shares a claim is for its account; a whole device counts as one.
fn count(claim: &Claim) -> usize {
    claim.part.shares().len().max(1)
}

/// How many shares of `plan` nobody else can have while `claim` lasts.
fn taken_by(claim: &Claim, plan: &Plan) -> usize {
    taken(plan, &claim.device, claim.part.shares().len())
}

/// As [`taken_by`], for a claim of so many shares of `device`; of none for the whole device.
fn taken(plan: &Plan, device: &DeviceKey, shares: usize) -> usize {
    match shares {
        0 => plan.devices.iter().find(|split| split.key == *device).map_or(1, parts),
        shares => shares,
    }
}

/// How many can hold a part of a device at the same time.
fn parts(split: &SplitDevice) -> usize {
    split.shares.len().max(1)
}

/// The most that all users may hold together. Without a number in the policy, one share is left to root; where there is
/// only one, users may hold it, because they could have nothing otherwise.
fn most_of_all(plan: &Plan) -> usize {
    let all = plan.quota.all.map(|all| usize::try_from(all).unwrap_or(usize::MAX));
    all.unwrap_or_else(|| plan.devices.iter().map(parts).sum::<usize>().saturating_sub(1).max(1))
}
