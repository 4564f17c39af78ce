//! Those who hold what is reserved for another user: they get a warning before its time and in it, and are ended or
//! released in it if the policy says `clear: end`.

use super::ending::Ending;
use super::terminals::{self, TERMINALS};
use super::{ClaimKey, OFTEN, SELDOM, end, release};
use crate::serve::commands::Commands;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use tranche_core::claims::Claims;
use tranche_core::error::Result;
use tranche_core::ledger::clock;
use tranche_core::ledger::{Calendar, Claim, ClaimState, Holder, ReservedTime};
use tranche_plan::hold;
use tranche_plan::policy::ClearBy;
use tranche_state::accounts::Account;

/// How long a holder may take to end.
const GRACE: Duration = Duration::from_secs(60);

/// What was done about them.
#[derive(Default)]
pub(super) struct ReservedFromOthers {
    /// Who was told of which reservation, and whether its time had come.
    told: BTreeSet<(u32, bool, ClaimKey)>,
    ending: BTreeMap<ClaimKey, Ending>,
}

impl ReservedFromOthers {
    /// Does what is due. Returns when to look again.
    ///
    /// # Errors
    /// Returns an error if the calendar or the ledger cannot be read.
    pub(super) fn look(&mut self, commands: &Commands<'_>) -> Result<Duration> {
        let calendar = Calendar::read(commands.state_dir())?;
        let claims = match calendar.times.is_empty() {
            true => None,
            false => Claims::existing(commands.state_dir())?,
        };
        let Some(claims) = claims else {
            *self = Self::default();
            return Ok(SELDOM);
        };
        let now = calendar.now(clock());
        let mut found = BTreeSet::new();
        for time in calendar.times.iter().filter(|time| time.is_near(now)) {
            let has_begun = now >= time.from;
            let book = claims.book(time.device.gpu())?;
            let is_in_the_way =
                |claim: &&Claim| claim.uid != time.uid && !claim.joined && claim.overlaps(&time.device, &time.part);
            let is_given_up = book.has_given_up(time.id);
            for claim in book.claims.iter().filter(|_| !is_given_up).filter(is_in_the_way) {
                let key = hold::key(claim);
                found.insert((time.id, has_begun, key.clone()));
                self.act(commands, &claims, time, has_begun, claim, key)?;
            }
        }
        self.told.retain(|told| found.contains(told));
        self.ending
            .retain(|key, _| found.iter().any(|(_, has_begun, of)| *has_begun && of == key));
        Ok(OFTEN)
    }

    fn act(
        &mut self,
        commands: &Commands<'_>,
        claims: &Claims,
        time: &ReservedTime,
        has_begun: bool,
        claim: &Claim,
        key: ClaimKey,
    ) -> Result<()> {
        let settings = commands.facts().ok().and_then(|facts| facts.plan.calendar);
        let clears = settings.is_some_and(|settings| settings.clear == ClearBy::End);
        // As with the limits of time, nothing of root's is ended, nor what runs in a container of root's engine.
        let may_end = clears && commands.accounts.of(claim.uid) != Account::Owner;
        let is_unused = claim.holder == Holder::Person && claim.state == ClaimState::Reserved;
        let is_ended = may_end && matches!(claim.holder, Holder::Rootless { .. } | Holder::Process { .. });
        let who = claim.who();
        if self.told.insert((time.id, has_begun, key.clone())) {
            let follows = match (is_ended, may_end && is_unused) {
                (true, _) => "; it is ended when that begins",
                (_, true) => "; it is released when that begins",
                _ => "",
            };
            let line = format!("{who}: holds {}, which is {time}{follows}", time.label);
            tracing::warn!("{line}");
            terminals::tell(claim.uid, &line, Path::new(TERMINALS));
        }
        if !has_begun {
            return Ok(());
        }
        if is_ended {
            end(&mut self.ending, &key, claim, GRACE, claims, commands);
        } else if may_end && is_unused && release(commands, claims, claim)? {
            tracing::warn!("{who}: released");
        }
        Ok(())
    }
}
