//! All instances that a GPU can have, for a scheduler that chooses among them by itself: Kubernetes.

use super::choose::lost;
use super::rules::Rules;
use super::{Counters, InstanceProfile, MigGpu, Placement, ProfileId};

/// An instance that a GPU can have, whether it exists or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PossibleInstance<'g> {
    /// Its profile.
    pub profile: &'g InstanceProfile,
    /// Its place.
    pub placement: Placement,
    /// What it uses of the GPU's [`instance_counters`].
    pub consumes: Counters,
}

/// What the instances of `gpu` use up together. They can exist at the same time if and only if, of each counter, they
/// consume no more than this.
pub fn instance_counters(gpu: &MigGpu) -> Counters {
    Rules::of(gpu).counters()
}

/// The instances that `gpu` can have, whatever it has now, in the order in which a scheduler that takes the first free
/// one loses the least: the smallest profile first, because a request may be satisfied by several, and of one profile
/// first the place with which an empty GPU loses the least capacity ([`super::LostCapacity`]).
pub fn possible_instances(gpu: &MigGpu) -> Vec<PossibleInstance<'_>> {
    let rules = Rules::of(gpu);
    let empty = rules.left(&[]);
    let mut all = Vec::new();
    for profile in &gpu.profiles {
        for placement in &profile.placements {
            let lost = lost(&empty, &rules.left(&[(profile.id, *placement)]));
            let size = (profile.slices, profile.memory, profile.id);
            let possible = PossibleInstance {
                profile,
                placement: *placement,
                consumes: rules.consumed(profile, placement),
            };
            all.push(((size, lost, placement.start), possible));
        }
    }
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all.into_iter().map(|(_, possible)| possible).collect()
}

/// Whether `gpu` could have an instance of `profile` at `placement` if it had the instances `beside` and no others.
pub fn fits_beside(
    gpu: &MigGpu,
    beside: &[(ProfileId, Placement)],
    profile: &InstanceProfile,
    placement: &Placement,
) -> bool {
    Rules::of(gpu).allow(beside, profile, placement)
}
