//! What users have held lately: counted while the broker runs, and kept while it does not.

use super::UserQueue;
use crate::facts::Facts;
use crate::serve::commands::Commands;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tranche_core::error::{Result, line};
use tranche_core::ledger::Claim;
use tranche_plan::queue::UsedLately;
use tranche_plan::share::Plan;
use tranche_state::accounts::Account;
use tranche_state::mutex::lock;
use tranche_state::state_file::{self, FileForm};

const FILE: &str = "used-lately.json";

/// How often it is written at most.
const EVERY: Duration = Duration::from_secs(10);

/// What is kept. It is in the state directory, so it does not outlive a boot, and neither does time since boot.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    version: u32,
    /// Until when it was counted, in seconds since boot.
    until: u64,
    /// Device-seconds of each user, as they counted then.
    users: Vec<KeptUser>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptUser {
    /// `None`: the subordinate uids without a known owner.
    uid: Option<u32>,
    device_seconds: f64,
}

const FORM: FileForm = FileForm {
    version: 1,
    invalid: "is not valid",
    hint: "remove it; what users have held until now is forgotten then",
};

impl UserQueue {
    /// Counts what users have held since it was counted last: `claims`, which share devices of `facts`.
    pub(super) fn count<'a>(
        &self,
        commands: &Commands<'_>,
        facts: &Facts,
        claims: impl Iterator<Item = &'a Claim>,
    ) -> Result<()> {
        let now = super::now();
        let mut state = lock(&self.state);
        let path = file(commands.state_dir());
        if state.used.is_none() {
            let kept = FORM.read(&path, |kept: &Kept| kept.version).unwrap_or_else(|error| {
                tracing::warn!("{}", line(&error));
                None
            });
            let kept = kept.unwrap_or_default();
            let mut used = UsedLately::new(facts.plan.queue.half_life.get());
            let until = Duration::from_secs(kept.until);
            // A file of another boot.
            let is_of_this_boot = kept.until != 0 && until <= now;
            for user in kept.users.iter().filter(|_| is_of_this_boot) {
                used.add(
                    user.uid.map_or(Account::Shared, Account::User),
                    user.device_seconds,
                    until,
                );
            }
            state.counted_until = if is_of_this_boot { until } else { now };
            state.used = Some(used);
        }
        let before = state.counted_until;
        let passed = now.saturating_sub(before).as_secs_f64();
        let Some(used) = &mut state.used else { return Ok(()) };
        for claim in claims {
            let account = commands.accounts.already_known(claim.uid);
            if account != Account::Owner {
                used.add(account, passed * devices(claim, &facts.plan), now);
            }
        }
        let is_due = now.as_secs() / EVERY.as_secs() != before.as_secs() / EVERY.as_secs();
        state.counted_until = now;
        if !is_due {
            return Ok(());
        }
        let Some(used) = &mut state.used else { return Ok(()) };
        let users = used.amounts(now).into_iter().filter_map(|(account, device_seconds)| {
            let uid = match account {
                Account::Owner => return None,
                Account::User(uid) => Some(uid),
                Account::Shared => None,
            };
            Some(KeptUser { uid, device_seconds })
        });
        let kept = Kept {
            version: FORM.version,
            until: now.as_secs(),
            users: users.collect(),
        };
        drop(state);
        // Who has used how much is nobody else's business.
        state_file::write_private(&path, &kept)
    }
}

/// How much of a device `claim` holds: 1 for all of it.
fn devices(claim: &Claim, plan: &Plan) -> f64 {
    let held = claim.part.shares().len();
    let all = plan.devices.iter().find(|split| split.key == claim.device);
    match (held, all) {
        (0, _) | (_, None) => 1.0,
        (held, Some(split)) => held as f64 / split.shares.len().max(held) as f64,
    }
}

fn file(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}
