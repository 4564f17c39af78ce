//! Where an instance is made that somebody asks for, on one of several GPUs.

use super::plan::offered;
use super::rules::Rules;
use super::{CapacityLeft, InstanceProfile, MigGpu, Placement, ProfileId};
use crate::inventory::{MigMode, VirtualizationMode};
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
}

/// The place of a new instance beside those that exist, with which the least capacity is lost: first of the largest
/// profiles that fitted before, then of all places. Of equal ones, the first of the first GPU. What is lost counts and
/// not what is left, because the latter would divide a GPU that is still whole.
///
/// `None` if no GPU in MIG mode has room for it.
pub fn choose<'g>(gpus: &'g [MigGpu], wished: &MigProfile) -> Option<ChosenPlace<'g>> {
    let places = gpus.iter().flat_map(|gpu| places(gpu, wished));
    let best = places.min_by(|(a, lost_a), (b, lost_b)| {
        let key = |place: &ChosenPlace<'_>| (place.gpu.index, place.placement.start);
        lost_a.cmp(lost_b).then_with(|| key(a).cmp(&key(b)))
    });
    best.map(|(place, _)| place)
}

/// What a new instance costs: which profiles no longer fit, from the largest to the smallest, and how many places are
/// lost.
type Lost = (Vec<bool>, usize);

fn places<'g>(gpu: &'g MigGpu, wished: &MigProfile) -> Vec<(ChosenPlace<'g>, Lost)> {
    let Ok(profile) = offered(gpu, "gpu", wished) else {
        return Vec::new();
    };
    let is_piece = matches!(
        gpu.virtualization,
        Some(VirtualizationMode::Vgpu | VirtualizationMode::HostVgpu | VirtualizationMode::HostVsga)
    );
    if gpu.mode.current != MigMode::Enabled || is_piece {
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
            let placement = *placement;
            found.push((
                ChosenPlace {
                    gpu,
                    profile,
                    placement,
                },
                lost,
            ));
        }
    }
    found
}

fn lost(before: &CapacityLeft, after: &CapacityLeft) -> Lost {
    let profiles = before.fits.iter().zip(&after.fits);
    (
        profiles.map(|(before, after)| *before && !after).collect(),
        before.places.saturating_sub(after.places),
    )
}
