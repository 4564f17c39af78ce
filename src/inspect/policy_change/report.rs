//! What changes, for people and programs.

use super::text::{self, group};
use serde::Serialize;
use tranche_core::text::{shown, some};
use tranche_plan::difference::{Difference, Meaning, Offer, Until};
use tranche_plan::share::Guarantees;
use tranche_state::held::{Held, View, earlier};

/// What changes with a policy.
#[derive(Debug, Default, Serialize)]
pub struct PolicyChange {
    /// Names that engines can ask for afterwards and not before.
    pub appear: Vec<NamedOffer>,
    /// Names that they can ask for before and not afterwards.
    pub vanish: Vec<NamedOffer>,
    /// Names that stay and mean something else.
    pub change: Vec<ChangedName>,
    /// Claims that the policy afterwards does not provide for. They stay valid until they end.
    pub not_offered: Vec<Held>,
    /// Names that are refused after the change, until when.
    pub refused: Vec<RefusedName>,
    /// Keys of the policy, and devices, of which something changes that no name shows.
    pub settings: Vec<String>,
    /// All of that for people.
    pub lines: Vec<String>,
}

/// A name, and what it gives to a container.
#[derive(Debug, Serialize)]
pub struct NamedOffer {
    /// The name.
    pub name: String,
    /// Other names of the same thing.
    pub aliases: Vec<String>,
    /// What it gives.
    #[serde(flatten)]
    pub gives: Gives,
}

/// What a name gives to a container.
#[derive(Debug, Serialize)]
pub struct Gives {
    /// How it is shared; `None` for a device that is given without a claim.
    pub strategy: Option<String>,
    /// How much of the device, in the form of hooks' arguments: `whole`, `1/4`, `mps:7000:30`; `None` without a claim.
    pub size: Option<String>,
    /// The device nodes.
    pub nodes: Vec<String>,
    /// What the share guarantees; `None` for a whole device.
    pub guarantees: Option<Guarantees>,
}

/// A name that stays and means something else.
#[derive(Debug, Serialize)]
pub struct ChangedName {
    /// The name.
    pub name: String,
    /// Other names of the same thing.
    pub aliases: Vec<String>,
    /// What it gives before.
    pub before: Gives,
    /// What it gives afterwards.
    pub after: Gives,
}

/// A name that is refused after the change.
#[derive(Debug, Serialize)]
pub struct RefusedName {
    /// The name.
    pub name: String,
    /// Other names of the same thing.
    pub aliases: Vec<String>,
    /// Claims that must all end first.
    pub until_ended: Vec<Held>,
    /// Claims of which enough must end first.
    pub until_enough_ended: Vec<Held>,
    /// Why it is refused in any case; `None` if it is not.
    pub otherwise: Option<String>,
}

impl PolicyChange {
    /// What `difference` says, with the names that `view` knows.
    pub fn of(difference: &Difference<'_>, view: &mut View) -> Self {
        let named = |offers: &[Offer]| offers.iter().map(NamedOffer::of).collect();
        let change = difference.change.iter().map(|change| ChangedName {
            name: change.after.name.clone(),
            aliases: change.after.aliases.clone(),
            before: Gives::of(&change.before.meaning),
            after: Gives::of(&change.after.meaning),
        });
        let claims = difference.not_offered.iter().filter_map(|finding| finding.claim());
        let refused = difference.refused.iter().map(|refusal| RefusedName {
            name: refusal.offer.name.clone(),
            aliases: refusal.offer.aliases.clone(),
            until_ended: refusal.until.all.iter().map(|claim| view.held(claim)).collect(),
            until_enough_ended: refusal.until.enough_of.iter().map(|claim| view.held(claim)).collect(),
            otherwise: refusal.until.otherwise.clone(),
        });
        let refused = refused.collect();
        Self {
            appear: named(&difference.appear),
            vanish: named(&difference.vanish),
            change: change.collect(),
            not_offered: claims.map(|claim| view.held(claim)).collect(),
            refused,
            settings: difference.settings.clone(),
            lines: lines(difference, view),
        }
    }

    /// Whether nothing changes.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }
}

impl NamedOffer {
    fn of(offer: &Offer) -> Self {
        Self {
            name: offer.name.clone(),
            aliases: offer.aliases.clone(),
            gives: Gives::of(&offer.meaning),
        }
    }
}

impl Gives {
    fn of(meaning: &Meaning) -> Self {
        Self {
            strategy: meaning.promise.map(|promise| promise.strategy().to_string()),
            size: meaning.promise.map(|promise| promise.to_string()),
            nodes: meaning.nodes.iter().cloned().collect(),
            guarantees: meaning.guarantees.clone(),
        }
    }
}

/// One line for each group of names that change in the same way, for each claim and for each group of refusals.
fn lines(difference: &Difference<'_>, view: &mut View) -> Vec<String> {
    let mut lines = Vec::new();
    for (word, offers) in [("appears", &difference.appear), ("vanishes", &difference.vanish)] {
        for (meaning, names) in group(offers.iter().map(|offer| (&offer.meaning, offer.name.clone()))) {
            lines.push(format!("{word}: {}: {}", some(&names), text::meaning(meaning)));
        }
    }
    let changes = difference.change.iter();
    let changes = changes.map(|change| {
        (
            (&change.before.meaning, &change.after.meaning),
            change.after.name.clone(),
        )
    });
    for ((before, after), names) in group(changes) {
        lines.push(format!("changes: {}: {}", some(&names), text::change(before, after)));
    }
    let settings = difference.settings.iter();
    lines.extend(settings.map(|setting| format!("changes: {setting}: other settings")));
    lines.extend(
        difference
            .not_offered
            .iter()
            .map(|finding| earlier::text(view, finding)),
    );
    let refusals = difference.refused.iter().filter_map(|refusal| {
        let call = refusal.offer.call.as_ref()?;
        Some(((&call.label, &refusal.until), call.subject.to_string()))
    });
    for ((device, until), parts) in group(refusals) {
        lines.push(refusal(device, &parts, until, view));
    }
    lines.iter().map(|line| shown(line).into_owned()).collect()
}

/// `gpu 0: the whole device is refused until claim train1 on nvidia.com/gpu=0.big has ended`
fn refusal(device: &str, parts: &[String], until: &Until<'_>, view: &mut View) -> String {
    let is = if parts.len() == 1 { "is" } else { "are" };
    format!("{device}: {} {is} refused{}", some(parts), text::until(until, view))
}
