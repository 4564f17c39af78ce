//! What a container takes into use, with its size.

use super::{HeldPart, Part, Promise};
use std::fmt;

/// What a container takes into use: what the arguments of its hook say, and what the ledger is asked for.
///
/// It differs from [`Part`], because a specification promises a size with each name; and from [`HeldPart`], because any
/// replica and a claim are not yet known shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A part of the device, of this size: of each replica for [`Part::Any`], and [`Promise::Whole`] for
    /// [`Part::Whole`].
    Part(Part, Promise),
    /// A claim that was reserved under this name, with what it was promised when its specification was written; `None`
    /// accepts any promise.
    Claim(String, Option<Promise>),
}

impl Subject {
    /// The whole device.
    pub const WHOLE: Self = Self::Part(Part::Whole, Promise::Whole);

    /// What is promised; `None` if it is not said.
    pub fn promise(&self) -> Option<Promise> {
        match self {
            Self::Part(_, promise) => Some(*promise),
            Self::Claim(_, promise) => *promise,
        }
    }

    /// What a claim on it holds; `None` if the ledger has to choose or to look it up.
    pub fn held(&self) -> Option<HeldPart> {
        match self {
            Self::Part(Part::Whole, _) => Some(HeldPart::Whole),
            Self::Part(Part::Share(name), promise) => Some(HeldPart::share(name.clone(), *promise)),
            Self::Part(Part::Any, _) | Self::Claim(..) => None,
        }
    }
}

impl fmt::Display for Subject {
    /// Writes it for messages: `share 3`, `any share`, `the whole device`, `claim train`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part(part, _) => part.fmt(f),
            Self::Claim(name, _) => f.pad(&format!("claim {name}")),
        }
    }
}
