//! What containers and people hold that a new policy does not provide for. It stays valid until it ends, so somebody who
//! changes the policy must know of it.

use super::containers::Names;
use super::held::Held;
use super::place::StateArgs;
use super::specs::Specs;
use super::{out, root_only, status};
use crate::claims::{Finding, findings};
use crate::error::Result;
use crate::inventory::Inventory;
use crate::ledger::{Claim, utc};
use crate::share::Plan;
use crate::text::{shown, some};

/// Prints [`lines`].
///
/// # Errors
/// As [`lines`].
pub(super) fn report(inventory: &Inventory, plan: Option<&Plan>, state: &StateArgs) -> Result<()> {
    lines(inventory, plan, state)?.into_iter().for_each(out::note);
    Ok(())
}

/// A line for each claim that `plan` does not provide for, for each device where the shares of `plan` do not fit beside what
/// is held, and for each book of the ledger that cannot be read. `None` is a policy that shares nothing.
///
/// Only the GPUs of `inventory` count: it may be that of another machine. A user who cannot see the ledger gets nothing.
///
/// # Errors
/// Returns an error if the ledger cannot be listed.
pub(super) fn lines(inventory: &Inventory, plan: Option<&Plan>, state: &StateArgs) -> Result<Vec<String>> {
    if root_only::check(&state.state_dir).is_err() {
        return Ok(Vec::new());
    }
    let (mut books, damaged) = status::books(state)?;
    books.retain(|book| inventory.gpus.iter().any(|gpu| gpu.uuid == book.gpu));
    let nothing = Plan::default();
    let found = findings(plan.unwrap_or(&nothing), &books);
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
                    "{name}: held by {by}; the policy does not have this share, which stays valid until it is given back"
                )
            }
            Finding::NotSplit { claim } => {
                let (name, by) = by(claim);
                format!(
                    "{name}: held by {by}; the policy does not share this device, so other containers can get all of it; \
                     keep the device in the policy until the share is given back"
                )
            }
            Finding::NoLongerFits { device, misfit, claims } => {
                let held: Vec<String> = claims
                    .iter()
                    .map(|claim| by(claim))
                    .map(|(n, by)| format!("{n} by {by}"))
                    .collect();
                format!(
                    "{device}: the shares of the policy do not fit beside what is held: {misfit}; held: {}; \
                     some shares are refused until that is given back",
                    some(&held)
                )
            }
        };
        shown(&line).into_owned()
    });
    Ok(lines.chain(damaged.iter().map(ToString::to_string)).collect())
}
