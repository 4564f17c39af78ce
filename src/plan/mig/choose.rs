//! Where an instance is made that somebody asks for, on one of several GPUs.

use super::plan::offered;
use super::rules::Rules;
use super::{CapacityLeft, InstanceProfile, MigGpu, Placement, ProfileId};
use crate::inventory::MigMode;
use tranche_core::types::MigProfile;

/// A place for an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChosenPlace<'g> {
    /// The GPU.
    pub gpu: &'g MigGpu,
    /// Its profile.
    pub profile: &'g InstanceProfile,
    /// The place, which is free.
    pub placement: Placement,
    /// What no longer fits with it.
    pub lost: LostCapacity,
}

/// What a new instance costs. The smaller one is better, in the order of the fields.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostCapacity {
    /// For each profile from the largest to the smallest, whether one instance of it fitted before and does not now.
    pub fits: Vec<bool>,
    /// How many places are lost in all, of all profiles.
    pub places: usize,
}

/// The place of a new instance beside those that exist, with which the least capacity is lost: first of the largest
/// profiles that fitted before, then of all places. Of equal ones, the first of the first GPU. What is lost counts and
/// not what is left, because the latter would divide a GPU that is still whole.
///
/// `None` if no GPU in MIG mode has room for it.
pub fn choose<'g>(gpus: &'g [MigGpu], wished: &MigProfile) -> Option<ChosenPlace<'g>> {
    let places = gpus.iter().flat_map(|gpu| places(gpu, wished));
    places.min_by(|a, b| {
        let key = |place: &ChosenPlace<'_>| (place.gpu.index, place.placement.start);
        a.lost.cmp(&b.lost).then_with(|| key(a).cmp(&key(b)))
    })
}

fn places<'g>(gpu: &'g MigGpu, wished: &MigProfile) -> Vec<ChosenPlace<'g>> {
    let Ok(profile) = offered(gpu, "gpu", wished) else {
        return Vec::new();
    };
    if gpu.mode.current != MigMode::Enabled || gpu.is_piece() {
        return Vec::new();
    }
    let rules = Rules::of(gpu);
    let mut chosen: Vec<(ProfileId, Placement)> =
        gpu.instances.iter().map(|one| (one.profile, one.placement)).collect();
    let before = rules.left(&chosen);
    let mut found = Vec::new();
    for placement in &profile.placements {
        if rules.allow(&chosen, profile, placement) {
            chosen.push((profile.id, *placement));
            let lost = lost(&before, &rules.left(&chosen));
            chosen.pop();
            found.push(ChosenPlace {
                gpu,
                profile,
                placement: *placement,
                lost,
            });
        }
    }
    found
}

pub(super) fn lost(before: &CapacityLeft, after: &CapacityLeft) -> LostCapacity {
    let profiles = before.fits.iter().zip(&after.fits);
    LostCapacity {
        fits: profiles.map(|(before, after)| *before && !after).collect(),
        places: before.places.saturating_sub(after.places),
    }
}
