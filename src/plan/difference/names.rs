//! The names of a specification, and what each of them means.

use crate::edits::{Derived, DerivedDevice};
use crate::share::{Guarantees, Plan, Share};
use std::collections::BTreeSet;
use tranche_core::call::ClaimCall;
use tranche_core::claims::ClaimEntry;
use tranche_core::types::{CdiKind, Part, Promise, Subject};

/// A name that engines can ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// The name: `nvidia.com/gpu=0.1`.
    pub name: String,
    /// Other names of the same thing, by the UUID of the device for example.
    pub aliases: Vec<String>,
    /// What it means.
    pub meaning: Meaning,
    /// The claim that its hook makes; `None` for a device that is given without a claim.
    pub call: Option<ClaimCall>,
}

/// What a name gives to a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meaning {
    /// The device nodes of GPUs and MIG devices.
    pub nodes: BTreeSet<String>,
    /// How much of the device it promises; `None` without a claim.
    pub promise: Option<Promise>,
    /// What that is worth; `None` for a whole device.
    pub guarantees: Option<Guarantees>,
}

impl Offer {
    /// What its hook enters; `None` for a device that is given without a claim.
    pub fn entry(&self) -> Option<ClaimEntry> {
        self.call.as_ref().map(ClaimEntry::of)
    }

    /// Whether it is the same under another name.
    fn is_same(&self, other: &Self) -> bool {
        let plain = |offer: &Self| offer.call.clone().map(|call| ClaimCall { asked_as: None, ..call });
        self.meaning == other.meaning && plain(self) == plain(other)
    }
}

/// The names of `derived`, which was made under `plan`, in its order. Those that mean the same are one.
pub fn offers(plan: &Plan, derived: Derived) -> Vec<Offer> {
    let mut found: Vec<Offer> = Vec::new();
    for of_kind in derived.by_kind() {
        let first = found.len();
        for device in &of_kind.devices {
            let offer = offer(plan, &of_kind.kind, device);
            // `all` of one GPU is not another name of the GPU: with a second GPU it would mean both.
            let is_alias = |known: &&mut Offer| known.is_same(&offer) && device.name.as_str() != "all";
            match found.iter_mut().skip(first).find(is_alias) {
                Some(known) => known.aliases.push(offer.name),
                None => found.push(offer),
            }
        }
    }
    found
}

fn offer(plan: &Plan, kind: &CdiKind, device: &DerivedDevice) -> Offer {
    let call = device
        .edits
        .hooks
        .iter()
        .find_map(|hook| ClaimCall::of_hook(&hook.args));
    let share = call.as_ref().and_then(|call| share(plan, call));
    let nodes = device.edits.nodes.keys().map(|node| node.as_str());
    Offer {
        name: format!("{kind}={}", device.name),
        aliases: Vec::new(),
        meaning: Meaning {
            nodes: nodes
                .filter(|node| node.starts_with("/dev/nvidia"))
                .map(str::to_owned)
                .collect(),
            promise: call.as_ref().and_then(|call| call.subject.promise()),
            guarantees: share.map(|share| share.guarantees.clone()),
        },
        call,
    }
}

/// The share of `plan` that a claim is about.
fn share<'a>(plan: &'a Plan, call: &ClaimCall) -> Option<&'a Share> {
    let split = plan.devices.iter().find(|split| split.key == call.device)?;
    match &call.subject {
        Subject::Part(Part::Share(name), _) => split.share(name),
        Subject::Part(Part::Any, _) => split.replica(),
        Subject::Part(Part::Whole, _) | Subject::Claim(..) => None,
    }
}
