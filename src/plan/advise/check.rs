//! Checks a policy with the code that `policy check`, `plan` and claims use.

use super::draft::{Draft, Grant};
use crate::policy::read;
use crate::share::{self, Holds, Plan, SplitDevice, Wish};
use std::collections::BTreeMap;
use tranche_core::error::{Error, Result};
use tranche_core::types::{Device, ShareName};

/// A policy that passed the check.
pub(super) struct Checked {
    /// Its plan for the machine with the layouts.
    pub(super) plan: Plan,
    /// For each grant, the share that it got.
    pub(super) granted: Vec<ShareName>,
}

/// What the containers hold that were served before.
#[derive(Default)]
struct Held(BTreeMap<Device, Vec<ShareName>>);

impl Holds for Held {
    fn is_free(&self, split: &SplitDevice, name: &ShareName) -> bool {
        self.0.get(&split.device).is_none_or(|held| !held.contains(name))
    }

    fn named(&self, split: &SplitDevice) -> Vec<ShareName> {
        self.0.get(&split.device).cloned().unwrap_or_default()
    }
}

/// Reads and plans the policy, and serves every container, one after the other.
///
/// # Errors
/// Returns the first error, also for what is only a warning where a person wrote the policy.
pub(super) fn check(draft: &Draft) -> Result<Checked> {
    let read = read::parse("policy", &draft.text)?;
    let plan = share::plan(&read.policy, &draft.inventory)?;
    let absent = plan.absent.iter().map(ToString::to_string);
    let mut problems = read
        .warnings
        .into_iter()
        .chain(plan.notes.clone())
        .chain(plan.warnings.clone())
        .chain(absent);
    if let Some(problem) = problems.next() {
        return Err(Error::failed("policy", problem));
    }
    let mut held = Held::default();
    let mut granted = Vec::with_capacity(draft.grants.len());
    for grant in &draft.grants {
        let fit = share::fit(&plan, &wish(grant), &held)?;
        let [share] = fit.shares.as_slice() else {
            return Err(Error::failed(&grant.of, "was not served by one share"));
        };
        held.0.entry(fit.device).or_default().push(share.clone());
        granted.push(share.clone());
    }
    Ok(Checked { plan, granted })
}

/// What a container asks for, as a claim does. Turns have no size.
fn wish(grant: &Grant) -> Wish {
    let sized = Wish {
        device: Some(grant.device),
        memory: grant.memory.filter(|_| !grant.is_turn),
        compute: grant.compute.filter(|_| !grant.is_turn),
        ..Wish::default()
    };
    match &grant.share {
        Some(name) => Wish {
            names: vec![name.clone()],
            ..sized
        },
        None => Wish {
            shares: Some(1),
            is_whole: !grant.is_turn,
            compute: None,
            ..sized
        },
    }
}
