//! The planner beside a search that knows nothing of it: all sets of instances are listed first, by units in a bit
//! mask, and then the best one of those that have what is wanted is taken.

use super::products::{PRODUCTS, product};
use crate::mig::{
    ComputeInstance, ComputeProfileId, GpuInstance, Kept, MigGpu, Placement, ProfileId, WantedInstance, place,
};
use std::collections::{BTreeMap, BTreeSet};
use tranche_core::types::{ComputeInstanceId, GpuInstanceId};

/// A set of instances: profile and first unit, sorted.
pub(super) type State = Vec<(u32, u32)>;

fn mask(place: &Placement) -> u32 {
    ((1 << place.size) - 1) << place.start
}

pub(super) fn is_legal(gpu: &MigGpu, state: &State) -> bool {
    let mut units = 0;
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    let mut engines = [0; 4];
    for (id, start) in state {
        let profile = gpu.profile(ProfileId(*id)).unwrap();
        let place = profile.placements.iter().find(|place| place.start == *start).unwrap();
        if units & mask(place) != 0 {
            return false;
        }
        units |= mask(place);
        *counts.entry(*id).or_default() += 1;
        let own = profile.engines;
        for (sum, more) in engines.iter_mut().zip([own.decoders, own.encoders, own.jpeg, own.ofa]) {
            *sum += more;
        }
    }
    let most = |count: fn(&crate::mig::Engines) -> u32| gpu.profiles.iter().map(|p| count(&p.engines)).max().unwrap();
    let total = [
        most(|e| e.decoders),
        most(|e| e.encoders),
        most(|e| e.jpeg),
        most(|e| e.ofa),
    ];
    counts
        .iter()
        .all(|(id, count)| *count <= gpu.profile(ProfileId(*id)).unwrap().most)
        && engines.iter().zip(total).all(|(sum, total)| *sum <= total)
}

/// Every legal state of a GPU.
pub(super) fn states(gpu: &MigGpu) -> BTreeSet<State> {
    let mut all: BTreeSet<State> = BTreeSet::from([Vec::new()]);
    let mut last = all.clone();
    while !last.is_empty() {
        let mut next = BTreeSet::new();
        for state in &last {
            for profile in &gpu.profiles {
                for place in &profile.placements {
                    let mut more = state.clone();
                    more.push((profile.id.0, place.start));
                    more.sort_unstable();
                    if is_legal(gpu, &more) {
                        next.insert(more);
                    }
                }
            }
        }
        all.extend(next.iter().cloned());
        last = next;
    }
    all
}

fn profiles_of(state: &State) -> Vec<u32> {
    let mut ids: Vec<u32> = state.iter().map(|(id, _)| *id).collect();
    ids.sort_unstable();
    ids
}

/// What is destroyed, what still fits, how many places are left, and the starts: smaller is better.
type Cost = (usize, Vec<bool>, std::cmp::Reverse<usize>, Vec<u32>);

fn cost(gpu: &MigGpu, from: &State, to: &State) -> Cost {
    let destroyed = from.iter().filter(|one| !to.contains(one)).count();
    let mut by_size: Vec<_> = gpu.profiles.iter().collect();
    by_size.sort_by(|a, b| {
        let size = |p: &crate::mig::InstanceProfile| (p.slices, p.memory);
        size(b).cmp(&size(a)).then(a.id.cmp(&b.id))
    });
    let places: Vec<usize> = by_size
        .iter()
        .map(|profile| {
            let fits = |place: &&Placement| {
                let mut more = to.clone();
                more.push((profile.id.0, place.start));
                is_legal(gpu, &more)
            };
            profile.placements.iter().filter(fits).count()
        })
        .collect();
    let misses = places.iter().map(|places| *places == 0).collect();
    let mut starts: Vec<u32> = to.iter().map(|(_, start)| *start).collect();
    starts.sort_unstable();
    (destroyed, misses, std::cmp::Reverse(places.iter().sum()), starts)
}

fn gpu_in(gpu: &MigGpu, state: &State) -> MigGpu {
    let mut gpu = gpu.clone();
    gpu.instances = state
        .iter()
        .enumerate()
        .map(|(number, (id, start))| {
            let profile = gpu.profile(ProfileId(*id)).unwrap();
            let whole = profile.whole_compute().unwrap();
            GpuInstance {
                id: GpuInstanceId(number as u32),
                profile: profile.id,
                placement: *profile.placements.iter().find(|place| place.start == *start).unwrap(),
                compute: vec![ComputeInstance {
                    id: ComputeInstanceId(0),
                    profile: ComputeProfileId(whole.id.0),
                    placement: None,
                    uuid: None,
                }],
            }
        })
        .collect();
    gpu
}

/// Compares the planner with the list for each of `froms`, `wishes` and, by turns, what is in use.
fn compare(name: &str, every: usize) -> usize {
    let gpu = product(name);
    let states: Vec<State> = states(&gpu).into_iter().collect();
    let mut by_profiles: BTreeMap<Vec<u32>, Vec<&State>> = BTreeMap::new();
    for state in &states {
        by_profiles.entry(profiles_of(state)).or_default().push(state);
    }
    let wishes: Vec<&Vec<u32>> = by_profiles.keys().collect();
    let mut compared = 0;
    for (number, from) in states.iter().enumerate() {
        for (other, wish) in wishes.iter().enumerate() {
            // A sample that has each state and each wish, with different ones each time.
            if !(number * 31 + other * 17).is_multiple_of(every) {
                continue;
            }
            let now = gpu_in(&gpu, from);
            let used = from
                .iter()
                .enumerate()
                .filter(|(at, _)| (number + at + other).is_multiple_of(3));
            let (at, used): (Vec<usize>, Vec<&(u32, u32)>) = used.unzip();
            let kept: BTreeSet<Kept> = at.iter().map(|at| (GpuInstanceId(*at as u32), None)).collect();
            let keeps = |to: &&&State| used.iter().all(|one| to.contains(one));
            let best = by_profiles[*wish]
                .iter()
                .filter(keeps)
                .map(|to| cost(&gpu, from, to))
                .min();
            let wanted: Vec<WantedInstance> = wish
                .iter()
                .map(|id| WantedInstance {
                    profile: ProfileId(*id),
                    start: None,
                    compute: vec![gpu.profile(ProfileId(*id)).unwrap().slices],
                })
                .collect();
            let found = place(&now, &wanted, &kept).map(|(exact, _)| {
                let mut to: State = exact
                    .instances
                    .iter()
                    .map(|one| (one.profile.0, one.placement.start))
                    .collect();
                to.sort_unstable();
                assert_eq!(profiles_of(&to), **wish);
                assert!(is_legal(&gpu, &to));
                cost(&gpu, from, &to)
            });
            assert_eq!(found, best, "{name}: from {from:?} to {wish:?} with {used:?} in use");
            compared += 1;
        }
    }
    compared
}

#[test]
fn the_planner_is_never_worse_than_a_list_of_all_states() {
    for (name, _) in PRODUCTS {
        let compared = compare(name, 401);
        assert!(compared > 2, "{name}: {compared}");
    }
}

/// Every state with one wish in seven, other ones each time: `make test-mig-exact`.
#[test]
#[ignore = "takes seconds in release only; make test-mig-exact runs it"]
fn the_planner_is_never_worse_in_any_state() {
    for (name, _) in PRODUCTS {
        let compared = compare(name, 7);
        println!("{name}: {compared} pairs of a state and a wish");
    }
}

#[test]
fn the_number_of_states_is_that_of_another_enumeration() {
    // By a program outside this repository, from the same table.
    assert_eq!(states(&product("a100-40")).len(), 2319);
}
