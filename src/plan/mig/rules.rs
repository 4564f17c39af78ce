//! Which instances a GPU can have at the same time.
//!
//! Three rules, from NVIDIA's MIG user guide ("Supported MIG profiles", "Partitioning"): places do not overlap; a
//! profile has a limit of its own; and together the instances have no more engines than the GPU, which are those of its
//! largest profile. The driver may have further ones, which it says when an instance is created.

use super::place::CapacityLeft;
use super::{Engines, InstanceProfile, MigGpu, Placement, ProfileId};
use std::collections::BTreeMap;

/// Which engines are counted.
type Count = fn(&Engines) -> u32;

/// The engines of which the instances together have no more than the GPU. Copy engines are shared where there are more
/// instances than engines.
const LIMITED_ENGINES: [(&str, Count); 4] = [
    ("decoders", |engines| engines.decoders),
    ("encoders", |engines| engines.encoders),
    ("jpeg-decoders", |engines| engines.jpeg),
    ("ofa", |engines| engines.ofa),
];

/// Amounts by name. The names are DNS labels.
pub type Counters = BTreeMap<String, u32>;

/// The rules of one GPU.
pub(super) struct Rules<'a> {
    gpu: &'a MigGpu,
    /// The profiles, from the largest to the smallest.
    by_size: Vec<&'a InstanceProfile>,
    engines: Engines,
}

/// The profiles of which an instance can be created on `gpu` beside those that exist, from the largest to the smallest,
/// each with the first units of its free places.
pub fn free_places(gpu: &MigGpu) -> Vec<(&InstanceProfile, Vec<u32>)> {
    let rules = Rules::of(gpu);
    let chosen: Vec<(ProfileId, Placement)> = gpu.instances.iter().map(|one| (one.profile, one.placement)).collect();
    let free = |profile: &&InstanceProfile| {
        let places = profile
            .placements
            .iter()
            .filter(|place| rules.allow(&chosen, profile, place));
        places.map(|place| place.start).collect::<Vec<u32>>()
    };
    let all = rules.by_size.iter().map(|profile| (*profile, free(profile)));
    all.filter(|(_, starts)| !starts.is_empty()).collect()
}

impl<'a> Rules<'a> {
    pub(super) fn of(gpu: &'a MigGpu) -> Self {
        let mut by_size: Vec<&InstanceProfile> = gpu.profiles.iter().collect();
        by_size.sort_by_key(|profile| (std::cmp::Reverse((profile.slices, profile.memory)), profile.id));
        // The largest profile of some products lacks engines that a smaller one has (`-me`), so each is looked at.
        let most = |count: Count| gpu.profiles.iter().map(|p| count(&p.engines)).max().unwrap_or(0);
        Self {
            engines: Engines {
                copy: most(|engines| engines.copy),
                decoders: most(|engines| engines.decoders),
                encoders: most(|engines| engines.encoders),
                jpeg: most(|engines| engines.jpeg),
                ofa: most(|engines| engines.ofa),
            },
            gpu,
            by_size,
        }
    }

    /// Whether `profile` can be at `placement` beside the `chosen` instances.
    pub(super) fn allow(
        &self,
        chosen: &[(ProfileId, Placement)],
        profile: &InstanceProfile,
        placement: &Placement,
    ) -> bool {
        let is_free = chosen.iter().all(|(_, other)| !other.overlaps(placement));
        is_free && self.allow_one_more(chosen, profile)
    }

    /// Whether the limits of the profile and of the engines allow one more.
    fn allow_one_more(&self, chosen: &[(ProfileId, Placement)], profile: &InstanceProfile) -> bool {
        let same = chosen.iter().filter(|(id, _)| *id == profile.id).count();
        let all = chosen.iter().filter_map(|(id, _)| self.gpu.profile(*id));
        let within = |(_, count): &(&str, Count)| {
            let used: u32 = all.clone().map(|profile| count(&profile.engines)).sum();
            used + count(&profile.engines) <= count(&self.engines)
        };
        same < profile.most as usize && LIMITED_ENGINES.iter().all(within)
    }

    /// The same rules as amounts that instances use up together: what the GPU has. Instances can exist at the same time
    /// if and only if none of the amounts of [`Rules::consumed`] is more than this one in sum.
    pub(super) fn counters(&self) -> Counters {
        let places = self.gpu.profiles.iter().flat_map(|profile| &profile.placements);
        let units = places.flat_map(units).map(|unit| (unit, 1));
        let engines = LIMITED_ENGINES
            .iter()
            .map(|(name, count)| ((*name).to_owned(), count(&self.engines)));
        let profiles = self.gpu.profiles.iter().filter(|profile| has_a_limit(profile));
        let profiles = profiles.map(|profile| (of_profile(profile), profile.most));
        let all = units.chain(engines).chain(profiles);
        all.filter(|(_, amount)| *amount > 0).collect()
    }

    /// What an instance of `profile` at `placement` uses of [`Rules::counters`].
    pub(super) fn consumed(&self, profile: &InstanceProfile, placement: &Placement) -> Counters {
        let units = units(placement).map(|unit| (unit, 1));
        let engines = LIMITED_ENGINES
            .iter()
            .map(|(name, count)| ((*name).to_owned(), count(&profile.engines)));
        let own = has_a_limit(profile).then(|| (of_profile(profile), 1));
        let all = units.chain(engines).chain(own);
        all.filter(|(_, amount)| *amount > 0).collect()
    }

    /// What fits beside the `chosen` instances.
    pub(super) fn left(&self, chosen: &[(ProfileId, Placement)]) -> CapacityLeft {
        let places = self
            .by_size
            .iter()
            .map(|profile| match self.allow_one_more(chosen, profile) {
                true => {
                    let is_free = |place: &&Placement| chosen.iter().all(|(_, other)| !other.overlaps(place));
                    profile.placements.iter().filter(is_free).count()
                }
                false => 0,
            });
        let places: Vec<usize> = places.collect();
        CapacityLeft {
            fits: places.iter().map(|places| *places > 0).collect(),
            places: places.iter().sum(),
        }
    }
}

/// The memory units of a place.
fn units(placement: &Placement) -> impl Iterator<Item = String> + use<> {
    let end = placement.start.saturating_add(placement.size);
    (placement.start..end).map(|unit| format!("memory-unit-{unit}"))
}

/// Whether the driver allows fewer instances of the profile than there are places. Otherwise the places are the limit.
fn has_a_limit(profile: &InstanceProfile) -> bool {
    (profile.most as usize) < profile.placements.len()
}

fn of_profile(profile: &InstanceProfile) -> String {
    format!("profile-{}", profile.id)
}
