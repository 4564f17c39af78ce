//! Which shares of a device are free, without a look at each of equal replicas: those that nobody names are all free,
//! or none is.

use super::shares::sums;
use super::{Share, Shares, SplitDevice};
use std::collections::BTreeSet;
use tranche_core::types::{MemorySize, Percent, ShareName};

/// What is held and waited for, as a choice of shares asks for it.
pub trait Holds {
    /// Whether the share `name` of `split` can be had now.
    fn is_free(&self, split: &SplitDevice, name: &ShareName) -> bool;

    /// The shares of `split` that a claim, a waiting start or a reservation names. Names that it does not have do not
    /// matter.
    fn named(&self, split: &SplitDevice) -> Vec<ShareName>;
}

/// Nothing is held, and nobody waits.
#[derive(Debug)]
pub struct Unused;

impl Holds for Unused {
    fn is_free(&self, _: &SplitDevice, _: &ShareName) -> bool {
        true
    }

    fn named(&self, _: &SplitDevice) -> Vec<ShareName> {
        Vec::new()
    }
}

/// The free shares of a device.
#[derive(Debug)]
pub enum Free<'a> {
    /// Equal replicas.
    Equal(FreeReplicas<'a>),
    /// Shares with names.
    Named(Vec<&'a Share>),
}

/// The free ones of equal replicas.
#[derive(Debug)]
pub struct FreeReplicas<'a> {
    /// What each of them is.
    pub each: &'a Share,
    /// How many the device has.
    count: u32,
    /// Whether those are free that are not among the exceptions.
    is_free: bool,
    exceptions: BTreeSet<u32>,
}

impl SplitDevice {
    /// Those of its shares that can be had now, each of them alone.
    pub fn free(&self, holds: &impl Holds) -> Free<'_> {
        let equal = match &self.shares {
            Shares::Named(shares) => {
                let is_free = |share: &&Share| holds.is_free(self, &share.name);
                return Free::Named(shares.iter().filter(is_free).collect());
            }
            Shares::Equal(equal) => equal,
        };
        let named = holds.named(self);
        let named = named.iter().filter(|name| self.shares.get(name).is_some());
        let named: BTreeSet<u32> = named.filter_map(ShareName::number).collect();
        let is_free = |number: &u32| holds.is_free(self, &ShareName::replica(*number));
        let other = (0..equal.count).find(|number| !named.contains(number));
        let others_are_free = other.is_some_and(|other| is_free(&other));
        Free::Equal(FreeReplicas {
            each: &equal.each,
            count: equal.count,
            is_free: others_are_free,
            exceptions: named
                .into_iter()
                .filter(|number| is_free(number) != others_are_free)
                .collect(),
        })
    }
}

impl FreeReplicas<'_> {
    /// How many are free.
    pub fn len(&self) -> usize {
        let exceptions = self.exceptions.len();
        match self.is_free {
            true => usize::try_from(self.count)
                .unwrap_or(usize::MAX)
                .saturating_sub(exceptions),
            false => exceptions,
        }
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the replica with this name is free. The device has such a replica.
    pub fn has(&self, name: &ShareName) -> bool {
        let is_exception = name.number().is_some_and(|number| self.exceptions.contains(&number));
        self.is_free != is_exception
    }

    /// Their names in the order of their numbers, each made when it is asked for.
    pub fn names(&self) -> impl Iterator<Item = ShareName> + '_ {
        let (all, few) = match self.is_free {
            true => (self.count, None),
            false => (0, Some(&self.exceptions)),
        };
        let all = (0..all).filter(|number| !self.exceptions.contains(number));
        all.chain(few.into_iter().flatten().copied()).map(ShareName::replica)
    }
}

impl Free<'_> {
    /// How many are free.
    pub fn len(&self) -> usize {
        match self {
            Self::Equal(replicas) => replicas.len(),
            Self::Named(shares) => shares.len(),
        }
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their memory and their compute in sum; `None` where one has no limit of it.
    pub(super) fn sums(&self) -> (Option<MemorySize>, Option<Percent>) {
        match self {
            Self::Equal(replicas) => sums([replicas.each], replicas.len() as u64),
            Self::Named(shares) => sums(shares.iter().copied(), 1),
        }
    }

    /// Their names, of replicas at most [`Shares::MOST_LISTED`].
    pub fn listed(&self) -> Vec<ShareName> {
        match self {
            Self::Equal(replicas) => replicas.names().take(Shares::MOST_LISTED).collect(),
            Self::Named(shares) => shares.iter().map(|share| share.name.clone()).collect(),
        }
    }
}
