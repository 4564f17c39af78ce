//! Why it is this policy: the choice for each wish, the other ways that are possible, and what is not.

use super::Advice;
use super::assign::{Found, Solver};
use super::draft::Grant;
use super::place;
use super::way::Way;
use crate::share::Grade;
use serde::Serialize;
use std::collections::BTreeSet;
use tranche_core::text::{counted, some};
use tranche_core::types::ShareName;

/// What a wish gets, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The name of the wish.
    pub wish: String,
    /// How many containers it is for.
    pub containers: u32,
    /// How they get their parts.
    pub way: Way,
    /// The devices, by the names that they have after the layouts were applied, and what each is.
    pub devices: Vec<String>,
    /// The name by which each container asks for its part; of those that wait for others, none.
    pub ask: Vec<String>,
    /// The rule that chose the way.
    pub rule: &'static str,
    /// Why, in one sentence.
    pub reason: &'static str,
    /// What the reason rests on.
    pub source: &'static str,
    /// What the plan says a part is worth against the other containers of its device.
    pub worth: Option<WorthOf>,
}

/// The grades of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct WorthOf {
    /// Of device memory.
    pub memory: Grade,
    /// Of multiprocessors.
    pub compute: Grade,
    /// Of memory bandwidth.
    pub bandwidth: Grade,
    /// What a crash of a neighbour does.
    pub faults: Grade,
}

/// Another way that is possible for a wish.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunnerUp {
    /// The name of the wish.
    pub wish: String,
    /// The way.
    pub way: Way,
    /// What is given up with it.
    pub gives_up: &'static str,
}

/// How many other ways are shown for a wish.
const MOST_RUNNERS_UP: usize = 2;

/// The advice for what was found.
pub(super) fn advice(solver: &Solver<'_>, found: &Found) -> Advice {
    let (mut runners_up, mut notes) = (Vec::new(), Vec::new());
    let mut choices = Vec::new();
    for (number, one) in solver.wishes.workloads.iter().enumerate() {
        let (Some(way), Some(rule)) = (found.ways.get(number).copied(), solver.rules.get(number)) else {
            continue;
        };
        let mut others = 0;
        let mut is_after = false;
        let is_meant = |way: &&Way| one.count > 1 || !way.is_for_several();
        for other in rule.ways.iter().filter(is_meant) {
            if *other == way {
                is_after = true;
            } else if !is_after {
                let alone = place::first(one, *other, solver.machine, &solver.machine.unused());
                let why = alone
                    .err()
                    .unwrap_or_else(|| "not together with the other wishes".to_owned());
                notes.push(format!("{}: {other} is not possible: {why}", one.name));
            } else if others < MOST_RUNNERS_UP && solver.solve(Some((number, *other))).is_some() {
                others += 1;
                runners_up.push(RunnerUp {
                    wish: one.name.to_string(),
                    way: *other,
                    gives_up: other.gives_up(),
                });
            }
        }
        let Parts { devices, ask, worth } = parts(found, one.name.as_str());
        choices.push(Choice {
            wish: one.name.to_string(),
            containers: one.count,
            way,
            devices,
            ask,
            rule: rule.id,
            reason: rule.reason,
            source: rule.basis.text(),
            worth,
        });
    }
    notes.extend(warnings(solver, found));
    Advice {
        policy: found.draft.text.clone(),
        mig_layouts: found.draft.layouts.clone(),
        choices,
        runners_up,
        notes,
    }
}

/// What the containers of a wish got: the fields of its choice.
struct Parts {
    devices: Vec<String>,
    ask: Vec<String>,
    worth: Option<WorthOf>,
}

fn parts(found: &Found, name: &str) -> Parts {
    let plan = &found.checked.plan;
    let grants = found.draft.grants.iter().zip(&found.checked.granted);
    let own: Vec<(&Grant, &ShareName)> = grants.filter(|(grant, _)| grant.of == name).collect();
    let devices: BTreeSet<_> = own.iter().map(|(grant, _)| grant.device).collect();
    let described = devices.iter().filter_map(|device| plan.split(*device));
    let ask = own.iter().filter_map(|(grant, _)| {
        let kind = &plan.split(grant.device)?.kind;
        let device = grant.device.cdi_name();
        Some(match (&grant.share, grant.is_turn) {
            (Some(share), _) => format!("{kind}={device}.{share}"),
            (None, true) => format!("{kind}={device}.{}", ShareName::ANY),
            (None, false) => format!("{kind}={device}"),
        })
    });
    let worth = own.first().and_then(|(grant, share)| {
        let guarantees = &plan.split(grant.device)?.share(share)?.guarantees;
        Some(WorthOf {
            memory: guarantees.memory.grade,
            compute: guarantees.compute.grade,
            bandwidth: guarantees.bandwidth.grade,
            faults: guarantees.faults.grade,
        })
    });
    Parts {
        devices: described
            .map(|split| format!("{}, {}", split.device, split.product))
            .collect(),
        ask: ask.collect(),
        worth,
    }
}

/// What to know before the policy is used.
fn warnings(solver: &Solver<'_>, found: &Found) -> Vec<String> {
    let mut notes = Vec::new();
    let has = |way: Way| found.ways.contains(&way);
    if has(Way::Turns) || has(Way::Pool) {
        notes.push(
            "time-slicing limits no memory: the first process that allocates too much leaves too little".to_owned(),
        );
    }
    if has(Way::Waiting) {
        notes.push("maxHold and idle only show the excess; atLimit and atIdle act on it (policy.md)".to_owned());
    }
    if !found.draft.layouts.is_empty() {
        notes.push(
            "the numbers of MIG devices are those that the driver usually gives: check them after the layout was applied"
                .to_owned(),
        );
    }
    let planned = |index| found.checked.plan.devices.iter().any(|split| split.device.gpu == index);
    let mut unused: Vec<String> = solver
        .machine
        .gpus
        .iter()
        .filter(|one| !planned(one.gpu.index))
        .map(|one| one.name())
        .collect();
    unused.sort();
    if !unused.is_empty() {
        notes.push(format!(
            "the policy does not name {} ({}), so every container that requests one gets it",
            counted(unused.len(), "GPU"),
            some(&unused)
        ));
    }
    notes
}
