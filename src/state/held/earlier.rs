//! What is held and what a new policy does not provide for. It stays valid until it ends, so a person who changes the
//! policy must know of it.

use super::names::DeviceNames;
use super::{View, books, root_only};
use std::collections::BTreeSet;
use std::path::Path;
use tranche_core::error::{Error, Result, line};
use tranche_core::ledger::{Claim, utc};
use tranche_core::text::shown;
use tranche_core::types::DeviceKey;
use tranche_plan::inventory::Inventory;
use tranche_plan::reserve::{Finding, findings, held_unsplit};
use tranche_plan::share::Plan;

/// What is held and what a plan does not provide for.
#[derive(Debug, Default)]
pub struct Earlier {
    /// A line for each claim that the plan does not provide for, and for each device where the shares of the plan do
    /// not fit beside what is held.
    pub lines: Vec<String>,
    /// A line for each book of the ledger that cannot be read.
    pub damaged: Vec<String>,
    /// The devices that the plan does not split and of which something is, or may be, held. A GPU whose book cannot be
    /// read is one of them.
    pub held: BTreeSet<DeviceKey>,
}

impl Earlier {
    /// The lines about claims and about books.
    pub fn all_lines(&self) -> impl Iterator<Item = &String> {
        self.lines.iter().chain(&self.damaged)
    }
}

/// Compares the ledger with `plan`; `None` is a policy that shares nothing.
///
/// Only the GPUs of `inventory` count, because it may be the inventory of another machine. For a user who cannot read
/// the ledger, nothing is found.
///
/// # Errors
/// Returns an error if the ledger cannot be listed.
pub fn earlier(inventory: &Inventory, plan: Option<&Plan>, state_dir: &Path) -> Result<Earlier> {
    if root_only::check(state_dir).is_err() {
        if state_dir.join("ledger").exists() {
            tracing::warn!(
                "{}: only root can read the ledger, so it is unknown what is held of these devices; run this as root",
                state_dir.display()
            );
        }
        return Ok(Earlier::default());
    }
    let unknown = |error: Error| Error::new(error.kind(), "held shares", "cannot be determined").from_source(error);
    let (mut books, _) = books(state_dir).map_err(unknown)?;
    books
        .books
        .retain(|book| inventory.gpus.iter().any(|gpu| gpu.uuid == book.gpu));
    let nothing = Plan::default();
    let found = findings(plan.unwrap_or(&nothing), &books.books);
    let held = held_unsplit(&found, &books, inventory.gpus.iter().map(|gpu| &gpu.uuid));
    let mut view = View::new(
        DeviceNames::new(inventory.clone(), plan.cloned().unwrap_or_default()),
        0,
    );
    let lines = found.iter().map(|finding| text(&mut view, finding));
    Ok(Earlier {
        lines: lines.map(|line| shown(&line).into_owned()).collect(),
        damaged: books.errors().map(|error| line(error)).collect(),
        held,
    })
}

/// The line about what is held and what a plan does not provide for.
pub fn text(view: &mut View, finding: &Finding<'_>) -> String {
    let by = |view: &mut View, claim: &Claim| {
        let held = view.held(claim);
        format!("{}: held by {} since {}", held.cdi, held.by(), utc(held.since))
    };
    match finding {
        Finding::UnknownShare { claim } => format!(
            "{}; the policy does not have this share, which stays valid until it is released",
            by(view, claim)
        ),
        Finding::NotSplit { claim } => format!(
            "{}; the policy does not share this device, and tranche cdi generate keeps the whole of it claimed until this \
             is released",
            by(view, claim)
        ),
        Finding::NoLongerFits { device, misfit, claims } => format!(
            "{device}: the shares of the policy do not fit in addition to what is held: {misfit}; held: {}; some shares \
             are refused until that is released",
            view.list(claims.iter().copied())
        ),
    }
}
