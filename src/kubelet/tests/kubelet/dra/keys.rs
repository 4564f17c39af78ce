//! The keys by which selectors choose devices: those of NVIDIA's driver (kubernetes-sigs/dra-driver-nvidia-gpu 0.5,
//! `deviceinfo.go` and `mig.go` of its gpu-kubelet-plugin), and where they are here.

use super::fixtures::{devices, equal, mig, named, node, objects, whole};
use k8s_openapi::api::resource::v1::Device;
use std::collections::BTreeSet;
use tranche_kubelet::dra::slices::{Form, slices};
use tranche_protocol::DraDevice;

/// What NVIDIA's driver says of every device.
const OF_BOTH: &[&str] = &[
    "gpu.nvidia.com/type",
    "gpu.nvidia.com/uuid",
    "gpu.nvidia.com/productName",
    "gpu.nvidia.com/brand",
    "gpu.nvidia.com/architecture",
    "gpu.nvidia.com/cudaComputeCapability",
    "gpu.nvidia.com/driverVersion",
    "gpu.nvidia.com/cudaDriverVersion",
    "gpu.nvidia.com/addressingMode",
    "resource.kubernetes.io/pciBusID",
    "resource.kubernetes.io/pcieRoot",
    "resource.kubernetes.io/numaNode",
    "gpu.nvidia.com/memory",
];

/// What it says of a MIG device in addition.
const OF_MIG: &[&str] = &[
    "gpu.nvidia.com/parentUUID",
    "gpu.nvidia.com/profile",
    "gpu.nvidia.com/multiprocessors",
    "gpu.nvidia.com/copyEngines",
    "gpu.nvidia.com/decoders",
    "gpu.nvidia.com/encoders",
    "gpu.nvidia.com/jpegEngines",
    "gpu.nvidia.com/ofaEngines",
];

/// What only this driver says, of whole devices.
const HERE_ALONE: &[&str] = &[
    "gpu.nvidia.com/index",
    "gpu.nvidia.com/minor",
    "gpu.nvidia.com/multiprocessors",
    "gpu.tranche.dev/strategy",
    "gpu.tranche.dev/guaranteeMemory",
    "gpu.tranche.dev/guaranteeCompute",
];

/// What a MIG device of NVIDIA's driver has and one of this driver has not: `memorySlice0` and so on say where an
/// instance is, which is in its name here, and in the counters of one that is made for a claim. With them, the largest
/// instances would have more than the 32 attributes and capacities of the API.
const THERE_ALONE: &str = "gpu.nvidia.com/memorySlice";

fn first(device: &DraDevice, driver: &str) -> Device {
    let pool = slices(&devices([device.clone()]), driver, &node(), Form::Full);
    let devices = objects(&pool, driver, &node()).remove(0).spec.devices;
    devices.unwrap().remove(0)
}

/// The keys of a device as a selector finds them: a name without a domain has that of the driver.
fn keys(device: &Device, driver: &str) -> BTreeSet<String> {
    let attributes = device.attributes.iter().flatten().map(|(name, _)| name);
    let names = attributes.chain(device.capacity.iter().flatten().map(|(name, _)| name));
    names
        .map(|name| match name.contains('/') {
            true => name.clone(),
            false => format!("{driver}/{name}"),
        })
        .collect()
}

#[test]
fn each_key_of_nvidias_driver_is_one_here() {
    for driver in ["gpu.tranche.dev", "gpu.nvidia.com"] {
        let gpu = keys(&first(&whole(0), driver), driver);
        let small = keys(&first(&mig(0, 7), driver), driver);
        let own: BTreeSet<String> = ["memory", "multiprocessors"]
            .map(|name| format!("{driver}/{name}"))
            .into();
        let table = |there: &[&[&str]]| -> BTreeSet<String> {
            let all = there.iter().flat_map(|keys| keys.iter());
            all.map(|key| (*key).to_owned()).chain(own.clone()).collect()
        };
        assert_eq!(gpu, table(&[OF_BOTH, HERE_ALONE]), "{driver}");
        assert_eq!(small, table(&[OF_BOTH, OF_MIG, HERE_ALONE]), "{driver}");
        assert!(!small.iter().any(|key| key.starts_with(THERE_ALONE)), "{driver}");
        // A selector without has() that asks for one of these stops no allocation on a node with shares.
        for shared in [equal(0, 10), named(0)] {
            let shared = keys(&first(&shared, driver), driver);
            let missing: Vec<&&str> = OF_BOTH.iter().filter(|key| !shared.contains(**key)).collect();
            assert!(missing.is_empty(), "{driver}: {missing:?}");
        }
    }
}

/// What the device has in all is for selectors, and no claim is charged for it: only `memory` is divided.
#[test]
fn the_size_of_a_shared_device_is_no_amount_of_a_claim() {
    let shared = first(&equal(0, 10), "gpu.tranche.dev").capacity.unwrap();
    let size = &shared["gpu.nvidia.com/memory"];
    let policy = size.request_policy.as_ref().unwrap();
    assert_eq!(
        (policy.default.as_ref().unwrap().0.as_str(), size.value.0.as_str()),
        ("0", "143771Mi")
    );
    assert_eq!(policy.valid_values.as_ref().unwrap().len(), 1);
    assert_eq!(
        shared["memory"]
            .request_policy
            .as_ref()
            .unwrap()
            .default
            .as_ref()
            .unwrap()
            .0,
        "14377Mi"
    );
    // Under NVIDIA's name there is one key for both, and it is divided.
    let shared = first(&equal(0, 10), "gpu.nvidia.com").capacity.unwrap();
    assert!(
        shared.keys().eq(["compute", "memory", "multiprocessors", "shares"]),
        "{shared:?}"
    );
}
