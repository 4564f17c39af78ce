//! Holders that keep the MPS daemon of their device from others again and again, where the policy says
//! `sharing.mps.blocked: end`.

use super::ending::Ending;
use super::{ClaimKey, OFTEN, end};
use crate::serve::commands::Commands;
use std::collections::BTreeMap;
use std::time::Duration;
use tranche_core::claims::Claims;
use tranche_core::error::Result;
use tranche_plan::hold;

/// How long such a holder may take to end.
const GRACE: Duration = Duration::from_secs(10);

/// The holders that are being ended.
#[derive(Default)]
pub(super) struct Blockers(BTreeMap<ClaimKey, Ending>);

impl Blockers {
    /// Ends those that are to be ended. Returns when to look again.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read.
    pub(super) fn look(&mut self, commands: &Commands<'_>) -> Result<Duration> {
        let blockers = commands.control.blockers();
        if blockers.is_empty() {
            self.0.clear();
            return Ok(OFTEN);
        }
        let Some(claims) = Claims::existing(commands.state_dir())? else {
            return Ok(OFTEN);
        };
        let books = claims.books()?;
        // A later claim of the same name has not blocked anything.
        let held = blockers
            .iter()
            .filter(|blocker| books.claims().any(|claim| claim == *blocker));
        let held: Vec<_> = held.map(|claim| (hold::key(claim), claim)).collect();
        self.0.retain(|key, _| held.iter().any(|(held, _)| held == key));
        for (key, claim) in held {
            if !self.0.contains_key(&key) {
                tracing::warn!("{}: has blocked its MPS daemon repeatedly; it is ended", claim.who());
            }
            end(&mut self.0, &key, claim, GRACE, &claims, commands);
        }
        Ok(OFTEN)
    }
}
