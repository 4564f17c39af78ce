//! Instances of MIG that do not exist: how they are published, and what the scheduler does with them.

use super::allocator::{Allocator, Request};
use super::checker::check;
use super::fixtures::{DRIVER, devices, mig, node, objects, published, whole};
use k8s_openapi::api::resource::v1::{Device, ResourceSlice};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tranche_core::types::MemorySize;
use tranche_kubelet::dra::slices::{Form, slices};
use tranche_plan::mig::{MigGpu, Placement, ProfileId, fits_beside, possible_instances};
use tranche_plan::policy::Policy;
use tranche_plan::share::{claimable_instances, dra_divided};
use tranche_plan::sim;
use tranche_protocol::{DraDevices, DraDivided, DraInstance};

macro_rules! products {
    ($($name:literal),+) => {
        const PRODUCTS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../../plan/sim/mig/", $name, ".json")))),+];
    };
}

products!("a30", "a100-40", "a100-80", "h100-80", "h200", "b200", "rtx-pro-6000");

fn product(name: &str) -> MigGpu {
    let (_, text) = PRODUCTS.iter().find(|(known, _)| *known == name).unwrap();
    serde_json::from_str(text).unwrap()
}

/// A GPU of this product, as a broker offers it.
pub(super) fn divided(minor: u32, name: &str) -> DraDivided {
    let mig = product(name);
    let host = sim::open("hgx-h200").unwrap();
    let gpu = &host.gpus[0];
    let instances = claimable_instances(&Policy::default(), gpu, &mig);
    let mut divided = dra_divided(gpu, &mig, &instances);
    let name = format!("gpu-{minor}");
    for one in &mut divided.instances {
        one.name = one.name.replacen(&divided.gpu.name, &name, 1);
    }
    divided.gpu = whole(minor).gpu;
    divided
}

fn node_of(gpus: impl IntoIterator<Item = DraDivided>) -> DraDevices {
    DraDevices {
        divided: gpus.into_iter().collect(),
        ..devices([whole(20), mig(21, 7)])
    }
}

fn text<'a>(device: &'a Device, name: &str) -> Option<&'a str> {
    device.attributes.as_ref()?.get(name)?.string.as_deref()
}

fn names(slices: &[ResourceSlice]) -> Vec<&str> {
    let devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    devices.map(|device| device.name.as_str()).collect()
}

#[test]
fn every_product_is_within_the_limits_of_the_api() {
    for (name, _) in PRODUCTS {
        for count in [1, 8, 9, 16] {
            let all = node_of((0..count).map(|minor| divided(minor, name)));
            let pool = slices(&all, DRIVER, &node(), Form::Full);
            assert_eq!(pool.warnings, [""; 0]);
            let published = objects(&pool, DRIVER, &node());
            assert_eq!(check(&published), [""; 0], "{name}, {count} GPUs");
            let sets = published
                .iter()
                .filter(|slice| slice.spec.shared_counters.is_some())
                .count();
            assert_eq!(sets, count.div_ceil(8) as usize);
            let places = possible_instances(&product(name)).len();
            assert_eq!(names(&published).len(), 2 + places * count as usize);
        }
    }
}

#[test]
fn what_exists_is_given_away_before_something_is_made() {
    let slices = published(&node_of([divided(0, "h200")]), Form::Full);
    let all = names(&slices);
    assert_eq!(
        all[..3],
        ["gpu-20", "gpu-21-mig-1g-18gb-7-0", "gpu-0-mig-1g-18gb-19-at-6"]
    );
    let device = &slices.last().unwrap().spec.devices.as_ref().unwrap()[0];
    assert_eq!(text(device, "gpu.nvidia.com/type"), Some("mig"));
    assert_eq!(text(device, "gpu.nvidia.com/profile"), Some("1g.18gb"));
    assert_eq!(
        text(device, "gpu.nvidia.com/parentUUID"),
        Some(whole(0).gpu.uuid.as_str())
    );
    assert_eq!(text(device, "gpu.nvidia.com/uuid"), None, "it has none yet");
    assert_eq!(text(device, "gpu.tranche.dev/guaranteeMemory"), Some("hard"));
    // Without counters, two claims could get the same place.
    for form in [Form::Uncounted, Form::Plain] {
        let published = published(&node_of([divided(0, "h200")]), form);
        assert_eq!(check(&published), [""; 0]);
        assert_eq!(names(&published), ["gpu-20", "gpu-21-mig-1g-18gb-7-0"]);
    }
}

#[test]
fn what_another_holder_has_is_not_allocated() {
    let mut gpu = divided(0, "a30");
    for one in gpu
        .instances
        .iter_mut()
        .filter(|one| one.consumes.contains_key("memory-unit-0"))
    {
        one.held_by = Some("container 262bf9f7e5a8".into());
    }
    let all = DraDevices {
        divided: vec![gpu],
        ..devices([])
    };
    let mut allocator = Allocator::new(published(&all, Form::Full));
    let any = Request::amounts(&[]);
    let got = std::iter::from_fn(|| allocator.allocate(&any)).flatten().count();
    assert_eq!(got, 3);
}

/// Claims come and go by chance. What the scheduler allocates at one time can exist, and it finds a place whenever
/// a GPU has one.
#[test]
fn the_scheduler_allocates_exactly_what_can_exist() {
    for (name, _) in PRODUCTS {
        let mig = product(name);
        let possible = possible_instances(&mig);
        let by_name: BTreeMap<String, (ProfileId, Placement)> = divided(0, name)
            .instances
            .iter()
            .zip(&possible)
            .map(|(device, one)| (device.name.clone(), (one.profile.id, one.placement)))
            .collect();
        let mut allocator = Allocator::new(published(&node_of([divided(0, name)]), Form::Full));
        let mut held: Vec<String> = Vec::new();
        let mut chance = 7_usize;
        let (mut given, mut refused) = (0, 0);
        for _ in 0..600 {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let number = chance >> 33;
            if number.is_multiple_of(3) && !held.is_empty() {
                allocator.release(&held.swap_remove(number / 3 % held.len()));
                continue;
            }
            let profile = &mig.profiles[number / 3 % mig.profiles.len()];
            let wanted = profile.name.to_string();
            let request = Request {
                selector: &|device| {
                    device.name.starts_with("gpu-0-") && text(device, "gpu.nvidia.com/profile") == Some(wanted.as_str())
                },
                ..Request::amounts(&[])
            };
            let beside: Vec<_> = held.iter().map(|name| by_name[name]).collect();
            let mut places = profile.placements.iter();
            let has_room = places.any(|place| fits_beside(&mig, &beside, profile, place));
            match allocator.allocate(&request) {
                Some(got) => {
                    let (id, place) = by_name[&got[0]];
                    assert_eq!(id, profile.id);
                    assert!(
                        fits_beside(&mig, &beside, profile, &place),
                        "{name}: {got:?} beside {held:?}"
                    );
                    held.extend(got);
                    given += 1;
                }
                None => {
                    assert!(!has_room, "{name}: {wanted} beside {held:?}");
                    refused += 1;
                }
            }
        }
        assert!(given > 100 && refused > 100, "{name}: {given} {refused}");
    }
}

#[test]
fn the_checker_finds_wrong_counters() {
    type Mutant = (&'static str, fn(&mut Vec<ResourceSlice>));
    const MUTANTS: &[Mutant] = &[
        ("nine sets", |s| {
            let sets = s[0].spec.shared_counters.as_mut().unwrap();
            let first = sets[0].clone();
            sets.extend((0..8).map(|n| k8s_openapi::api::resource::v1::CounterSet {
                name: format!("more-{n}"),
                ..first.clone()
            }));
        }),
        ("33 counters", |s| {
            let set = &mut s[0].spec.shared_counters.as_mut().unwrap()[0];
            (0..33).for_each(|n| drop(set.counters.insert(format!("more-{n}"), Default::default())));
        }),
        ("a set twice", |s| {
            let sets = s[0].spec.shared_counters.as_mut().unwrap();
            sets.push(sets[0].clone());
        }),
        ("the set is missing", |s| {
            s[0].spec.shared_counters.as_mut().unwrap()[0].name = "other".into();
        }),
        ("a counter is missing", |s| {
            drop(
                s[0].spec.shared_counters.as_mut().unwrap()[0]
                    .counters
                    .remove("memory-unit-0"),
            )
        }),
        ("65 devices", |s| {
            let devices = s.last_mut().unwrap().spec.devices.as_mut().unwrap();
            let first = devices[0].clone();
            devices.extend((0..64).map(|n| Device {
                name: format!("more-{n}"),
                ..first.clone()
            }));
        }),
    ];
    for (what, change) in MUTANTS {
        let mut slices = published(&node_of([divided(0, "h100-80")]), Form::Full);
        assert_eq!(check(&slices), [""; 0]);
        change(&mut slices);
        assert_ne!(check(&slices), [""; 0], "{what} is not found");
    }
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![8 => "[a-z0-9]{1,5}(-[a-z0-9]{1,5}){0,3}", 1 => "\\PC{0,70}", 1 => Just("memory-unit-0".to_owned())]
}

/// What no broker should answer.
fn any_divided() -> impl Strategy<Value = DraDivided> {
    let amounts = |most: usize| btree_map(word(), 0..4_u32, 0..most);
    let instance = (word(), word(), amounts(4), of(word()), any::<bool>(), any::<u64>());
    let gpu = (
        prop_oneof![Just("gpu-0".to_owned()), word()],
        prop_oneof![3 => amounts(6), 1 => amounts(60)],
    );
    (gpu, vec(instance, 0..100)).prop_map(|((name, counters), instances)| {
        let mut divided = divided(0, "a30");
        divided.gpu.name = name;
        let of_one = |(name, profile, mut consumes, held_by, is_known, mib): (_, _, BTreeMap<_, _>, _, bool, _)| {
            if is_known {
                consumes = counters.clone();
            }
            DraInstance {
                name,
                profile,
                memory: MemorySize::from_mib(mib),
                multiprocessors: 16,
                engines: None,
                consumes,
                held_by,
            }
        };
        divided.instances = instances.into_iter().map(of_one).collect();
        divided.counters = counters;
        divided
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn no_answer_of_a_broker_breaks_a_rule(gpus in vec(any_divided(), 0..12)) {
        let all = node_of(gpus);
        for form in [Form::Full, Form::Uncounted, Form::Plain] {
            let pool = slices(&all, DRIVER, &node(), form);
            prop_assert_eq!(check(&objects(&pool, DRIVER, &node())), Vec::<String>::new());
        }
    }
}
