//! Whether a policy is a file of NVIDIA's device plugin, so that what it does not say means what it means there.

use crate::yaml::{Node, Value};

/// The sections that tranche alone reads.
const OWN_SECTIONS: [&str; 3] = ["runtime", "kubernetes", "mig"];

/// The keys of the plugin in `sharing`, in the section of a strategy and in an entry of its resources. An unknown key
/// is an error there, so that every other one is tranche's.
const SHARING: [&str; 2] = ["timeSlicing", "mps"];
const STRATEGY: [&str; 3] = ["renameByDefault", "failRequestsGreaterThanOne", "resources"];
const ENTRY: [&str; 4] = ["name", "rename", "devices", "replicas"];

/// Whether the policy `root` has no key that tranche alone reads.
pub(super) fn is_of_the_plugin(root: &Node) -> bool {
    entries(root).all(|(name, value)| match name {
        name if is_one_of(name, &OWN_SECTIONS) => false,
        name if is_one_of(name, &["sharing"]) => entries(value).all(|(name, strategy)| {
            is_one_of(name, &SHARING)
                && entries(strategy).all(|(name, value)| is_one_of(name, &STRATEGY) && has_entries(value))
        }),
        _ => true,
    })
}

/// Whether the items of a list have keys of the plugin alone.
fn has_entries(resources: &Node) -> bool {
    let Value::List(items) = &resources.value else {
        return true;
    };
    items
        .iter()
        .all(|item| entries(item).all(|(name, _)| is_one_of(name, &ENTRY)))
}

fn entries(node: &Node) -> impl Iterator<Item = (&str, &Node)> {
    let entries = match &node.value {
        Value::Map(entries) => entries.as_slice(),
        _ => &[],
    };
    entries
        .iter()
        .map(|(key, value)| (key.value.text().unwrap_or_default(), value))
}

fn is_one_of(name: &str, known: &[&str]) -> bool {
    known.iter().any(|known| name.eq_ignore_ascii_case(known))
}
