//! Parts of devices, as the ledger records them.

use super::{Part, Promise, ShareName, Strategy};
use std::fmt;
use std::hash::{Hash, Hasher};

/// A share as it was when it was taken. A later policy may give its name to another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldShare {
    /// Its name.
    pub name: ShareName,
    /// How much of the device it is.
    pub promise: Promise,
}

/// The name alone: shares of one name and two sizes are few, and each start of a container hashes all that are held.
impl Hash for HeldShare {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// What of a device a claim holds. It differs from [`Part`], because a claim can hold several shares, and because a
/// share is held in the size that it had when it was taken, whatever a later policy says of its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeldPart {
    /// All of it, against every share.
    Whole,
    /// These shares, sorted; at least one.
    Shares(Vec<HeldShare>),
}

impl HeldPart {
    /// One share.
    pub fn share(name: ShareName, promise: Promise) -> Self {
        HeldPart::Shares(vec![HeldShare { name, promise }])
    }

    /// The shares; empty for the whole device.
    pub fn shares(&self) -> &[HeldShare] {
        match self {
            HeldPart::Whole => &[],
            HeldPart::Shares(shares) => shares,
        }
    }

    /// What was promised with each share, or with the whole device.
    pub fn promises(&self) -> impl Iterator<Item = Promise> + '_ {
        let whole = (*self == HeldPart::Whole).then_some(Promise::Whole);
        whole.into_iter().chain(self.shares().iter().map(|share| share.promise))
    }

    /// What was promised in sum; `None` where shares do not add up, which no claim that was granted has.
    pub fn promise(&self) -> Option<Promise> {
        let mut promises = self.promises();
        let first = promises.next()?;
        promises.try_fold(first, Promise::and)
    }

    /// The strategy under which the device is used.
    pub fn strategy(&self) -> Strategy {
        match self {
            HeldPart::Whole => Strategy::Dedicated,
            HeldPart::Shares(shares) => shares.first().map_or(Strategy::Dedicated, |s| s.promise.strategy()),
        }
    }

    /// Whether both are of one device and cannot be held at once, because one is the whole device or because a share is
    /// in both. A share of the same name and another size is another share, of an earlier policy.
    pub fn overlaps(&self, other: &HeldPart) -> bool {
        match (self, other) {
            (HeldPart::Shares(a), HeldPart::Shares(b)) => a.iter().any(|share| b.contains(share)),
            _ => true,
        }
    }
}

impl fmt::Display for HeldPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeldPart::Whole => Part::Whole.fmt(f),
            HeldPart::Shares(shares) => {
                let names: Vec<&str> = shares.iter().map(|share| share.name.as_str()).collect();
                let word = if names.len() == 1 { "share" } else { "shares" };
                f.pad(&format!("{word} {}", crate::text::some(&names)))
            }
        }
    }
}
