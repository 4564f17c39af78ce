//! The thread that acts on what users hold for longer than the policy lets them (`maxHold`).

mod ending;
mod engine;
mod rest;

use super::commands::Commands;
use crate::claim_spec;
use crate::overdue;
use ending::Ending;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use tranche_core::claims::Claims;
use tranche_core::error::{Result, line};
use tranche_core::ledger::Claim;
use tranche_plan::hold::{Due, Overdue};

/// How often it looks while the policy has a limit of time.
const OFTEN: Duration = Duration::from_secs(5);

/// How often it looks whether the policy has one.
const SELDOM: Duration = Duration::from_secs(30);

/// A claim, as long as nobody makes it again: no two claims hold one part of a device at the same time.
type ClaimKey = String;

/// What was done about the claims that are still held for too long.
#[derive(Default)]
struct Acted {
    told: BTreeSet<ClaimKey>,
    /// `None`: its holder cannot be ended.
    ending: BTreeMap<ClaimKey, Option<Ending>>,
}

/// Looks again and again until the other end of `until` is gone. What was done is not kept: a later broker tells it
/// again, and gives a holder its time to end again.
pub(super) fn run(commands: &Commands<'_>, until: &Receiver<()>) {
    let mut acted = Acted::default();
    loop {
        let next = acted.look(commands).unwrap_or_else(|error| {
            tracing::warn!("{}", line(&error));
            SELDOM
        });
        if until.recv_timeout(next) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}

impl Acted {
    /// Does what is due. Returns when it is to be looked again.
    fn look(&mut self, commands: &Commands<'_>) -> Result<Duration> {
        // Without a plan no limit is known, and each request is answered with the reason.
        let facts = commands.facts().ok();
        let policy = facts.as_ref().map(|facts| &facts.plan.users);
        let Some(policy) = policy.filter(|policy| policy.limits_time()) else {
            *self = Self::default();
            return Ok(SELDOM);
        };
        let Some(claims) = Claims::existing(commands.state_dir())? else {
            return Ok(OFTEN);
        };
        let (books, uptime) = (claims.books()?, claims.uptime());
        let found = books.claims();
        let found: BTreeMap<ClaimKey, Overdue<'_>> = found
            .filter_map(|claim| overdue::of(claim, commands.accounts, policy, uptime))
            .map(|one| (key(one.claim), one))
            .collect();
        self.told.retain(|key| found.contains_key(key));
        let is_due = |key: &ClaimKey| found.get(key).is_some_and(|one| one.due == Due::End);
        self.ending.retain(|key, _| is_due(key));
        for (key, one) in &found {
            let who = one.claim.who();
            if self.told.insert(key.clone()) {
                let limit = &one.limit;
                tracing::warn!(
                    "{who}: held for longer than {}, which is maxHold in {}",
                    limit.value.most,
                    limit.from
                );
            }
            match one.due {
                Due::Tell => {}
                Due::Release => {
                    if release(commands, &claims, one.claim)? {
                        tracing::warn!("{who}: released");
                    }
                }
                Due::End => self.end(key, &who, one, &claims),
            }
        }
        Ok(OFTEN)
    }

    /// Begins to end the holder of a claim, or goes on with it.
    fn end(&mut self, key: &str, who: &str, one: &Overdue<'_>, claims: &Claims) {
        let (grace, uptime) = (one.limit.value.grace.get(), claims.uptime());
        let Some(process) = &one.claim.process else { return };
        // A claim that was made beforehand may have another container by now.
        let known = self.ending.get_mut(key).filter(|known| {
            let Some(ending) = known else { return true };
            ending.is_of(process)
        });
        let done = match known {
            None => {
                let begun = Ending::ask(one.claim, process, grace, claims.machine(), uptime);
                let (ending, done) = match begun {
                    Ok((ending, what)) => (Some(ending), Ok(Some(what))),
                    Err(why) => (None, Err(why)),
                };
                self.ending.insert(key.to_owned(), ending);
                done
            }
            Some(Some(ending)) => ending.go_on(grace, claims.machine(), uptime),
            Some(None) => Ok(None),
        };
        match done {
            Ok(Some(what)) => tracing::warn!("{who}: process {}: {what}", process.pid),
            Ok(None) => {}
            Err(why) => tracing::warn!("{who}: process {}: cannot be ended: {why}", process.pid),
        }
    }
}

fn key(claim: &Claim) -> ClaimKey {
    format!("{} {} {:?}", claim.device, claim.part, claim.since_boot)
}

/// Releases `meant` with its specification, unless something of it has changed. Returns whether it was released.
fn release(commands: &Commands<'_>, claims: &Claims, meant: &Claim) -> Result<bool> {
    let locked = claims.lock()?;
    let books = locked.books()?;
    let Some(claim) = books.claims().find(|claim| *claim == meant) else {
        return Ok(false);
    };
    locked.release_by_hand(&[claim], false)?;
    claim_spec::remove_of(claim, commands.state_dir())?;
    Ok(true)
}
