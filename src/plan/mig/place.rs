//! Finds the places for the instances of one GPU, with the least change.
//!
//! The search is exact: it looks at every legal way to place what is wanted, which are a few thousand at most, because
//! a GPU has at most seven instances (12 units on the largest product).

use super::exact::{ExactCompute, ExactGpu, ExactInstance};
use super::rules::Rules;
use super::{MigGpu, Placement, ProfileId};
use crate::inventory::MigMode;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use tranche_core::types::{ComputeInstanceId, GpuInstanceId};

/// An instance that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WantedInstance {
    /// Its profile.
    pub profile: ProfileId,
    /// Its first unit; `None`: anywhere.
    pub start: Option<u32>,
    /// The slices of its compute instances, largest first: the driver places them one after the other.
    pub compute: Vec<u32>,
}

/// What must not be destroyed: a compute instance, or all of a GPU instance.
pub type Kept = (GpuInstanceId, Option<ComputeInstanceId>);

/// How much a way to place the instances costs. The smaller one is better, in the order of the fields.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlacementCost {
    /// How many instances are destroyed.
    pub destroyed: usize,
    /// What can still be created afterwards.
    pub left: Reverse<CapacityLeft>,
    /// Where the instances begin, in order: lower is better.
    pub starts: Vec<u32>,
}

/// What a GPU can still get beside its instances. The larger one is better.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CapacityLeft {
    /// For each profile from the largest to the smallest, whether one instance of it fits.
    pub fits: Vec<bool>,
    /// How many places there are in all, of all profiles.
    pub places: usize,
}

/// The best way to give `gpu` exactly the `wanted` instances without destroying anything in `kept`; `None` if there is
/// none. The GPU is in MIG mode afterwards.
pub fn place(gpu: &MigGpu, wanted: &[WantedInstance], kept: &BTreeSet<Kept>) -> Option<(ExactGpu, PlacementCost)> {
    let mut wanted = wanted.to_vec();
    // The largest are placed first, because they have the fewest places; equal ones follow each other.
    let size = |one: &WantedInstance| gpu.profile(one.profile).map(|profile| profile.slices);
    wanted.sort_by(|a, b| size(b).cmp(&size(a)).then_with(|| a.cmp(b)));
    let mut search = Search {
        gpu,
        rules: Rules::of(gpu),
        wanted: &wanted,
        kept,
        chosen: Vec::new(),
        best: None,
    };
    search.go();
    search.best
}

struct Search<'a> {
    gpu: &'a MigGpu,
    rules: Rules<'a>,
    wanted: &'a [WantedInstance],
    kept: &'a BTreeSet<Kept>,
    chosen: Vec<(ProfileId, Placement)>,
    best: Option<(ExactGpu, PlacementCost)>,
}

impl Search<'_> {
    fn go(&mut self) {
        let Some(next) = self.wanted.get(self.chosen.len()) else {
            return self.look();
        };
        let Some(profile) = self.gpu.profile(next.profile) else {
            return;
        };
        // Of equal ones, the order does not matter: each begins after the one before.
        let before = self
            .chosen
            .len()
            .checked_sub(1)
            .filter(|last| self.wanted.get(*last) == Some(next));
        let after = before
            .and_then(|last| self.chosen.get(last))
            .map(|(_, placement)| placement.start);
        for placement in &profile.placements {
            let is_meant = next.start.is_none_or(|start| start == placement.start);
            if !is_meant || after.is_some_and(|after| placement.start <= after) {
                continue;
            }
            if self.rules.allow(&self.chosen, profile, placement) {
                self.chosen.push((profile.id, *placement));
                self.go();
                self.chosen.pop();
            }
        }
    }

    /// Looks at one way in which everything is placed.
    fn look(&mut self) {
        let exact = exact(self.gpu, self.wanted, &self.chosen);
        let destroyed = exact.destroyed(self.gpu);
        let is_kept = |(instance, compute): &Kept| {
            let of = |(other, one): &Kept| other == instance && (one.is_none() || compute.is_none() || one == compute);
            self.kept.iter().any(of)
        };
        if destroyed.iter().any(is_kept) {
            return;
        }
        let cost = PlacementCost {
            destroyed: destroyed.len(),
            left: Reverse(self.rules.left(&self.chosen)),
            starts: exact.instances.iter().map(|one| one.placement.start).collect(),
        };
        if self.best.as_ref().is_none_or(|(_, best)| cost < *best) {
            self.best = Some((exact, cost));
        }
    }
}

fn exact(gpu: &MigGpu, wanted: &[WantedInstance], chosen: &[(ProfileId, Placement)]) -> ExactGpu {
    let mut instances: Vec<ExactInstance> = wanted
        .iter()
        .zip(chosen)
        .filter_map(|(wanted, (profile, placement))| {
            let compute = wanted.compute.iter().map(|slices| ExactCompute {
                start: None,
                slices: *slices,
            });
            Some(ExactInstance {
                profile: *profile,
                name: gpu.profile(*profile)?.name.clone(),
                placement: *placement,
                compute: compute.collect(),
            })
        })
        .collect();
    instances.sort_by_key(|one| one.placement);
    ExactGpu {
        gpu: gpu.uuid.clone(),
        mode: MigMode::Enabled,
        instances,
    }
}
