//! What is held and what a new policy does not provide for. It stays valid until it ends, so a person who changes the policy
//! must know of it.

use super::containers::Names;
use super::held::Held;
use super::place::StateArgs;
use super::specs::Specs;
use super::{out, root_only, status};
use crate::claims::{Finding, findings};
use anyhow::Result;

use crate::error::line;
use crate::inventory::Inventory;
use crate::ledger::{Books, Claim, utc};
use crate::share::Plan;
use crate::text::{shown, some};
use crate::types::DeviceKey;
use std::collections::BTreeSet;

/// What is held and what a plan does not provide for.
#[derive(Debug, Default)]
pub(super) struct Earlier {
    /// A line for each claim that the plan does not provide for, for each device where the shares of the plan do not fit
    /// beside what is held, and for each book of the ledger that cannot be read.
    pub(super) lines: Vec<String>,
    /// The devices that the plan does not split and of which something is, or may be, held. A GPU whose book cannot be
    /// read is one of them.
    pub(super) held: BTreeSet<DeviceKey>,
}

impl Earlier {
    /// Prints the lines.
    pub(super) fn report(&self) {
        self.lines.iter().for_each(out::note);
    }
}

/// Compares the ledger with `plan`; `None` is a policy that shares nothing.
///
/// Only the GPUs of `inventory` count, because it may be the inventory of another machine. For a user who cannot read the
/// ledger, nothing is found.
///
/// # Errors
/// Returns an error if the ledger cannot be listed.
pub(super) fn earlier(inventory: &Inventory, plan: Option<&Plan>, state: &StateArgs) -> Result<Earlier> {
    if root_only::check(&state.state_dir).is_err() {
        if state.state_dir.join("ledger").exists() {
            tracing::warn!(
                "{}: only root can read the ledger, so it is unknown what is held of these devices; run this as root",
                state.state_dir.display()
            );
        }
        return Ok(Earlier::default());
    }
    let (Books { mut books, damaged }, _) = status::books(state)?;
    books.retain(|book| inventory.gpus.iter().any(|gpu| gpu.uuid == book.gpu));
    let nothing = Plan::default();
    let found = findings(plan.unwrap_or(&nothing), &books);
    let unreadable = inventory.gpus.iter().map(|gpu| &gpu.uuid);
    let unreadable = unreadable.filter(|gpu| damaged.iter().any(|book| book.may_be_of(gpu)));
    let mut held: BTreeSet<DeviceKey> = unreadable.cloned().map(DeviceKey::whole).collect();
    held.extend(found.iter().filter_map(|finding| match finding {
        Finding::NotSplit { claim } => Some(claim.device.clone()),
        Finding::UnknownShare { .. } | Finding::NoLongerFits { .. } => None,
    }));
    let specs = plan.map(Specs::of_plan).unwrap_or_default();
    let mut names = Names::default();
    let mut by = |claim: &Claim| {
        let held = Held::of(claim, &specs, &mut names, 0);
        let holder = match &held.container {
            Some(container) => format!("container {}", container.shown()),
            None => format!("user {}", held.uid),
        };
        (held.cdi, format!("{holder} since {}", utc(claim.since)))
    };
    let lines = found.iter().map(|finding| {
        let line = match finding {
            Finding::UnknownShare { claim } => {
                let (name, by) = by(claim);
                format!(
                    "{name}: held by {by}; the policy does not have this share, which stays valid until it is released"
                )
            }
            Finding::NotSplit { claim } => {
                let (name, by) = by(claim);
                format!(
                    "{name}: held by {by}; the policy does not share this device, and tranche cdi generate keeps the \
                     whole of it claimed until this is released"
                )
            }
            Finding::NoLongerFits { device, misfit, claims } => {
                let held: Vec<String> = claims
                    .iter()
                    .map(|claim| by(claim))
                    .map(|(n, by)| format!("{n} by {by}"))
                    .collect();
                format!(
                    "{device}: the shares of the policy do not fit in addition to what is held: {misfit}; held: {}; \
                     some shares are refused until that is released",
                    some(&held)
                )
            }
        };
        shown(&line).into_owned()
    });
    let lines = lines.chain(damaged.iter().map(|book| line(&book.error))).collect();
    Ok(Earlier { lines, held })
}
