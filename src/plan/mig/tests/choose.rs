//! The choice of a place for one more instance.

use crate::mig::{GpuInstance, MigGpu, choose, free_places};
use tranche_core::types::{GpuIndex, GpuInstanceId, MigProfile};

const H100: &str = include_str!("../../sim/mig/h100-80.json");

fn gpu(index: u32, instances: &[(&str, u32)]) -> MigGpu {
    let mut gpu: MigGpu = serde_json::from_str(H100).unwrap();
    gpu.index = GpuIndex(index);
    gpu.uuid = format!("GPU-{index:08}-0000-0000-0000-000000000000").parse().unwrap();
    for (id, (name, start)) in instances.iter().enumerate() {
        let with = with(&gpu, name, *start, id);
        gpu = with;
    }
    gpu
}

fn with(gpu: &MigGpu, name: &str, start: u32, id: usize) -> MigGpu {
    let profile = gpu.profiles.iter().find(|one| one.name.to_string() == name).unwrap();
    let placement = *profile.placements.iter().find(|one| one.start == start).unwrap();
    let mut gpu = gpu.clone();
    gpu.instances.push(GpuInstance {
        id: GpuInstanceId(id as u32),
        profile: profile.id,
        placement,
        compute: Vec::new(),
    });
    gpu
}

fn chosen(gpus: &[MigGpu], name: &str) -> Option<(u32, u32)> {
    let place = choose(gpus, &name.parse::<MigProfile>().unwrap())?;
    Some((place.gpu.index.0, place.placement.start))
}

/// What still fits on all GPUs together: how often, by profile from the largest down.
fn fits(gpus: &[MigGpu]) -> Vec<usize> {
    let first = gpus.first().unwrap();
    let mut profiles: Vec<_> = first.profiles.iter().collect();
    profiles.sort_by_key(|one| (std::cmp::Reverse((one.slices, one.memory)), one.id));
    let on = |gpu: &MigGpu, id| free_places(gpu).iter().any(|(profile, _)| profile.id == id);
    let count = |id| gpus.iter().filter(|gpu| on(gpu, id)).count();
    profiles.iter().map(|profile| count(profile.id)).collect()
}

#[test]
fn a_whole_gpu_stays_whole() {
    // GPU 1 is divided already, and has room beside its instance without loss of a 3g.
    let gpus = [gpu(0, &[]), gpu(1, &[("1g.10gb", 0)])];
    assert_eq!(chosen(&gpus, "1g.10gb"), Some((1, 1)));
    assert_eq!(chosen(&gpus, "7g.80gb"), Some((0, 0)));
    // A driver that takes the highest place would leave no room for a 3g here.
    assert_eq!(chosen(&[gpu(0, &[("3g.40gb", 0)])], "1g.10gb"), Some((0, 6)));
    assert_eq!(chosen(&[gpu(0, &[("7g.80gb", 0)])], "1g.10gb"), None);
    assert_eq!(chosen(&gpus, "9g.10gb"), None);
}

/// From many states of two GPUs: no other place leaves room for more large profiles.
#[test]
fn no_other_place_leaves_more() {
    let mut looked = 0;
    for seed in 0..400_usize {
        let gpus = [random(0, seed), random(1, seed * 31 + 7)];
        for name in ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb"] {
            let id = gpus[0]
                .profiles
                .iter()
                .find(|one| one.name.to_string() == name)
                .unwrap()
                .id;
            let mut all = Vec::new();
            for (at, gpu) in gpus.iter().enumerate() {
                for (_, starts) in free_places(gpu).into_iter().filter(|(profile, _)| profile.id == id) {
                    for start in starts {
                        let mut after = gpus.clone();
                        after[at] = with(gpu, name, start, 99);
                        all.push(((at as u32, start), fits(&after)));
                    }
                }
            }
            let Some(chosen) = chosen(&gpus, name) else {
                assert!(all.is_empty(), "{seed} {name}");
                continue;
            };
            looked += 1;
            let (_, left) = all.iter().find(|(place, _)| *place == chosen).unwrap();
            let best = all.iter().map(|(_, left)| left).max().unwrap();
            assert_eq!(left, best, "{seed} {name} {chosen:?}");
        }
    }
    assert!(looked > 300, "{looked}");
}

/// A GPU with some instances that follow from `seed`.
fn random(index: u32, seed: usize) -> MigGpu {
    let mut gpu = gpu(index, &[]);
    let mut state = seed.wrapping_mul(0x9e37_79b9).wrapping_add(12345);
    for id in 0..seed % 6 {
        let free = free_places(&gpu);
        let places = free
            .iter()
            .flat_map(|(profile, starts)| starts.iter().map(|start| (profile.name.to_string(), *start)));
        let places: Vec<(String, u32)> = places.collect();
        if places.is_empty() {
            break;
        }
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let (name, start) = &places[(state >> 33) % places.len()];
        let with = with(&gpu, name, *start, id);
        gpu = with;
    }
    gpu
}
