//! Products, and GPUs that have instances.

use crate::mig::{ComputeInstance, ComputeProfileId, GpuInstance, MigGpu, Placement};
use tranche_core::types::{ComputeInstanceId, GpuInstanceId};

macro_rules! products {
    ($($name:literal),+) => {
        pub(super) const PRODUCTS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../sim/mig/", $name, ".json")))),+];
    };
}

products!("a30", "a100-40", "a100-80", "h100-80", "h200", "b200", "rtx-pro-6000");

/// The product of this name, without instances.
pub(super) fn product(name: &str) -> MigGpu {
    let (_, text) = PRODUCTS.iter().find(|(known, _)| *known == name).unwrap();
    serde_json::from_str(text).unwrap()
}

/// `gpu` with one whole compute instance in each of these instances: profile and first unit.
pub(super) fn with(gpu: &MigGpu, instances: &[(&str, u32)]) -> MigGpu {
    let mut gpu = gpu.clone();
    for (number, (name, start)) in instances.iter().enumerate() {
        let profile = gpu
            .profiles
            .iter()
            .find(|profile| profile.name.to_string() == *name)
            .unwrap();
        let placement = *profile.placements.iter().find(|place| place.start == *start).unwrap();
        let whole = profile.whole_compute().unwrap();
        let one = GpuInstance {
            id: GpuInstanceId(number as u32 + 1),
            profile: profile.id,
            placement,
            compute: vec![ComputeInstance {
                id: ComputeInstanceId(0),
                profile: ComputeProfileId(whole.id.0),
                placement: Some(Placement {
                    start: 0,
                    size: whole.slices,
                }),
                uuid: None,
            }],
        };
        gpu.instances.push(one);
    }
    gpu
}
