//! The words for what changes.

use tranche_core::claims::until_ended;
use tranche_core::ledger::Claim;
use tranche_core::text::some;
use tranche_core::types::Promise;
use tranche_plan::difference::{Meaning, Until};
use tranche_state::held::View;

/// The values of each key, in the order of the first of them.
pub(super) fn group<K: PartialEq>(pairs: impl Iterator<Item = (K, String)>) -> Vec<(K, Vec<String>)> {
    let mut groups: Vec<(K, Vec<String>)> = Vec::new();
    for (key, value) in pairs {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

/// What a name gives to a container.
pub(super) fn meaning(meaning: &Meaning) -> String {
    match meaning.promise {
        None if meaning.nodes.is_empty() => "no device".to_owned(),
        None => {
            let nodes: Vec<&String> = meaning.nodes.iter().collect();
            format!("{} without a claim", some(&nodes))
        }
        Some(Promise::Whole) => "whole, for one container at a time".to_owned(),
        Some(promise @ Promise::Slices { slices, of }) => format!("{slices} of {of} turns ({})", promise.strategy()),
        Some(Promise::Turns { holders }) => format!("the whole device by turns, with at most {} others", holders - 1),
        Some(promise @ Promise::Mps { memory, compute }) => {
            let memory = memory.map_or_else(|| "no limit of memory".to_owned(), |size| format!("{size} of memory"));
            let compute = compute.map_or_else(|| "no limit of compute".to_owned(), |part| format!("{part} of compute"));
            format!("{memory}, {compute} ({})", promise.strategy())
        }
    }
}

/// What a name gives before and afterwards.
pub(super) fn change(before: &Meaning, after: &Meaning) -> String {
    let (old, new) = (meaning(before), meaning(after));
    let mut parts = Vec::new();
    if old != new {
        parts.push(format!("{old} -> {new}"));
    }
    if let (Some(old), Some(new)) = (&before.guarantees, &after.guarantees) {
        let guarantees = [
            ("memory", &old.memory, &new.memory),
            ("compute", &old.compute, &new.compute),
            ("bandwidth", &old.bandwidth, &new.bandwidth),
            ("faults", &old.faults, &new.faults),
        ];
        let grades = guarantees
            .iter()
            .filter(|(_, old, new)| (old.grade, old.root) != (new.grade, new.root));
        parts.extend(grades.map(|(name, old, new)| {
            format!(
                "{name} guaranteed {} (root: {}) -> {} (root: {})",
                old.grade, old.root, new.grade, new.root
            )
        }));
    }
    match parts.is_empty() {
        true => "other guarantees; tranche plan shows them".to_owned(),
        false => parts.join("; "),
    }
}

/// The end of a sentence about something that is refused.
pub(super) fn until(until: &Until<'_>, view: &mut View) -> String {
    if let Some(why) = &until.otherwise {
        return format!(": {why}");
    }
    let (all, enough_of) = (named(&until.all, view), named(&until.enough_of, view));
    format!(" {}", until_ended(&all, &enough_of))
}

/// Claims, each by its name or else by its holder, and with what it holds.
fn named(claims: &[&Claim], view: &mut View) -> Vec<String> {
    let one = |claim: &&Claim| {
        let who = match claim.given_name() {
            Some(name) => format!("claim {name}"),
            None => view.held(claim).by(),
        };
        format!("{who} on {}", view.devices.part_name(claim))
    };
    claims.iter().map(one).collect()
}
