//! The possible instances of the products: what they consume, and in which order they are.

use super::brute_force::{State, is_legal, states};
use super::products::{PRODUCTS, product};
use crate::mig::{Counters, Engines, MigGpu, Placement, ProfileId, fits_beside, instance_counters, possible_instances};
use std::collections::{BTreeMap, BTreeSet};

/// Whether `state` fits into the counters.
fn fits(state: &State, counters: &Counters, consumes: &BTreeMap<(u32, u32), Counters>) -> bool {
    let mut left = counters.clone();
    for one in state {
        for (name, amount) in &consumes[one] {
            match left
                .get_mut(name)
                .and_then(|left| left.checked_sub(*amount).map(|rest| *left = rest))
            {
                Some(()) => {}
                None => return false,
            }
        }
    }
    true
}

fn consumes(gpu: &MigGpu) -> BTreeMap<(u32, u32), Counters> {
    let all = possible_instances(gpu).into_iter();
    all.map(|one| ((one.profile.id.0, one.placement.start), one.consumes))
        .collect()
}

/// From every legal state: each instance more, whether it may be there or not. So every legal set is looked at, and
/// every set that is one instance too many. A larger set that is illegal has one of these in it, and what is consumed
/// only grows.
#[test]
fn a_set_of_instances_fits_the_counters_if_and_only_if_the_rules_allow_it() {
    // On these products, the limits of engines imply those of profiles: without engines, the latter are seen.
    let without_engines = ["a30", "a100-40"].map(|name| {
        let mut gpu = product(name);
        for profile in &mut gpu.profiles {
            profile.engines = Engines::default();
        }
        (name, gpu)
    });
    let all = PRODUCTS.iter().map(|(name, _)| (*name, product(name)));
    for (name, gpu) in all.chain(without_engines) {
        let (counters, consumes) = (instance_counters(&gpu), consumes(&gpu));
        let (mut legal, mut illegal) = (0, 0);
        for state in states(&gpu) {
            assert!(fits(&state, &counters, &consumes), "{name}: {state:?}");
            legal += 1;
            let beside: Vec<(ProfileId, Placement)> = state
                .iter()
                .map(|(id, start)| (ProfileId(*id), place(&gpu, *id, *start)))
                .collect();
            for (id, start) in consumes.keys().copied() {
                let mut more = state.clone();
                more.push((id, start));
                let is_legal = is_legal(&gpu, &more);
                assert_eq!(fits(&more, &counters, &consumes), is_legal, "{name}: {more:?}");
                let profile = gpu.profile(ProfileId(id)).unwrap();
                assert_eq!(fits_beside(&gpu, &beside, profile, &place(&gpu, id, start)), is_legal);
                illegal += usize::from(!is_legal);
            }
        }
        assert!(legal > 50 && illegal > legal, "{name}: {legal} {illegal}");
    }
}

fn place(gpu: &MigGpu, id: u32, start: u32) -> Placement {
    let places = &gpu.profile(ProfileId(id)).unwrap().placements;
    *places.iter().find(|place| place.start == start).unwrap()
}

#[test]
fn the_counters_are_few_and_have_names_that_kubernetes_takes() {
    for (name, _) in PRODUCTS {
        let gpu = product(name);
        let counters = instance_counters(&gpu);
        // 32 in a set of `resource.k8s.io/v1`; 64 devices with counters in a slice.
        assert!(counters.len() <= 32, "{name}: {}", counters.len());
        assert!(possible_instances(&gpu).len() <= 64, "{name}");
        let is_label = |name: &String| {
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
        };
        assert!(counters.keys().all(is_label), "{counters:?}");
        // Nothing is consumed that the GPU lacks.
        let known: BTreeSet<&String> = counters.keys().collect();
        assert!(
            consumes(&gpu)
                .values()
                .flat_map(Counters::keys)
                .all(|name| known.contains(name))
        );
    }
    // Places that leave room for a limit of their own have a counter for it: `+me` is possible once.
    let a100 = instance_counters(&product("a100-40"));
    let limits: Vec<_> = a100.iter().filter(|(name, _)| name.starts_with("profile-")).collect();
    assert_eq!(limits, [(&"profile-20".to_owned(), &1)]);
    assert_eq!((a100["decoders"], a100.get("encoders")), (5, None));
}

#[test]
fn the_order_is_that_in_which_an_empty_gpu_loses_the_least() {
    let gpu = product("h100-80");
    let starts = |id: u32| -> Vec<u32> {
        let all = possible_instances(&gpu).into_iter();
        all.filter(|one| one.profile.id.0 == id)
            .map(|one| one.placement.start)
            .collect()
    };
    // The last unit costs a 1g.20gb less than 4 and 5, and 0 to 3 cost the 4g.
    assert_eq!(starts(19), [6, 4, 5, 0, 1, 2, 3]);
    assert_eq!(starts(14), [4, 0, 2]);
    // 3g at 4 leaves the 4g.
    assert_eq!(starts(9), [4, 0]);
    let sizes: Vec<u32> = possible_instances(&gpu).iter().map(|one| one.profile.slices).collect();
    assert!(sizes.is_sorted(), "{sizes:?}");
}
