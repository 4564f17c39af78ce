//! The shares of a device. Equal replicas are a count, so that neither a plan nor the start of a container grows with a
//! number in the policy.

use super::Share;
use crate::policy::MOST_NAMED;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use tranche_core::types::{MemorySize, Percent, ShareName};

/// The shares of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shares {
    /// Equal replicas, whose names are their numbers from 0.
    Equal(Equal),
    /// Shares with names of the policy, sorted. Of a device that stays whole, the only one.
    Named(Vec<Share>),
}

/// Equal replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Equal {
    /// How many.
    pub count: u32,
    /// What each of them is, with the name of the first.
    pub each: Share,
}

impl Shares {
    /// The most replicas of a device whose names are written anywhere: the rest are counted.
    pub const MOST_LISTED: usize = MOST_NAMED;

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Equal(equal) => usize::try_from(equal.count).unwrap_or(usize::MAX),
            Self::Named(shares) => shares.len(),
        }
    }

    /// Whether it has no share.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those that differ in more than their number: one of equal replicas.
    pub fn distinct(&self) -> &[Share] {
        match self {
            Self::Equal(equal) => std::slice::from_ref(&equal.each),
            Self::Named(shares) => shares,
        }
    }

    /// As [`Shares::distinct`].
    pub(super) fn distinct_mut(&mut self) -> &mut [Share] {
        match self {
            Self::Equal(equal) => std::slice::from_mut(&mut equal.each),
            Self::Named(shares) => shares,
        }
    }

    /// The first one, which stands for all of equal replicas.
    pub fn first(&self) -> Option<&Share> {
        self.distinct().first()
    }

    /// What the share with this name is. Of equal replicas, only the name differs.
    pub fn get(&self, name: &ShareName) -> Option<&Share> {
        match self {
            Self::Equal(equal) => {
                // As it is written, so that `03` is no second name of replica 3.
                let number = name.number().filter(|number| *number < equal.count);
                number
                    .filter(|number| ShareName::replica(*number) == *name)
                    .map(|_| &equal.each)
            }
            Self::Named(shares) => {
                let found = shares.binary_search_by(|share| share.name.cmp(name));
                found.ok().and_then(|at| shares.get(at))
            }
        }
    }

    /// Their names, each made when it is asked for.
    pub fn names(&self) -> impl Iterator<Item = ShareName> + '_ {
        let (count, named) = match self {
            Self::Equal(equal) => (equal.count, &[][..]),
            Self::Named(shares) => (0, shares.as_slice()),
        };
        (0..count)
            .map(ShareName::replica)
            .chain(named.iter().map(|share| share.name.clone()))
    }

    /// Their names, of replicas at most [`Shares::MOST_LISTED`].
    pub fn listed(&self) -> impl Iterator<Item = ShareName> + '_ {
        let most = match self {
            Self::Equal(_) => Self::MOST_LISTED,
            Self::Named(_) => usize::MAX,
        };
        self.names().take(most)
    }

    /// The memory of all in sum; `None` where one has no limit.
    pub(super) fn memory(&self) -> Option<MemorySize> {
        sums(self.distinct(), self.times()).0
    }

    /// The compute of all in sum; `None` where one has no limit.
    pub(super) fn compute(&self) -> Option<Percent> {
        sums(self.distinct(), self.times()).1
    }

    /// How many each of [`Shares::distinct`] stands for.
    fn times(&self) -> u64 {
        match self {
            Self::Equal(equal) => u64::from(equal.count),
            Self::Named(_) => 1,
        }
    }
}

/// The memory and the compute of `shares` in sum, each so many times; `None` where one has no limit of it.
pub(super) fn sums<'a>(
    shares: impl IntoIterator<Item = &'a Share> + Clone,
    times: u64,
) -> (Option<MemorySize>, Option<Percent>) {
    let sum = |of: fn(&Share) -> Option<u64>| {
        let mut sizes = shares.clone().into_iter().map(of);
        let sum = sizes.try_fold(0, |sum: u64, size| Some(sum.saturating_add(size?)))?;
        Some(sum.saturating_mul(times))
    };
    let memory = sum(|share| share.memory.map(MemorySize::mib));
    let compute = sum(|share| share.compute.map(|percent| u64::from(percent.get())));
    (
        memory.map(MemorySize::from_mib),
        compute.map(|sum| Percent::of_sum(u32::try_from(sum).unwrap_or(u32::MAX))),
    )
}

/// A list of shares with names, and an object with a count of equal ones.
impl Serialize for Shares {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Equal(equal) => equal.serialize(serializer),
            Self::Named(shares) => shares.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Shares {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SharesVisitor)
    }
}

struct SharesVisitor;

impl<'de> Visitor<'de> for SharesVisitor {
    type Value = Shares;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of shares, or a count of equal ones")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Shares, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(list)).map(Shares::Named)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Shares, A::Error> {
        let equal = Equal::deserialize(MapAccessDeserializer::new(map))?;
        match equal.count >= 2 && equal.each.name == ShareName::replica(0) {
            true => Ok(Shares::Equal(equal)),
            false => Err(A::Error::custom(format!("{} is no number of replicas", equal.count))),
        }
    }
}
