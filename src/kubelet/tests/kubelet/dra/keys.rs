//! The keys by which selectors choose devices: those of NVIDIA's driver (kubernetes-sigs/dra-driver-nvidia-gpu 0.5,
//! `deviceinfo.go`, `mig.go` and `partitions.go` of its gpu-kubelet-plugin), and where they are here.

use super::fixtures::{devices, equal, mig, named, node, objects, whole};
use k8s_openapi::api::resource::v1::Device;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
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

/// What only NVIDIA's driver says, where `N` is a number: of MIG devices, and of GPUs that virtual machines get.
const THERE_ALONE: &[&str] = &[
    "gpu.nvidia.com/memorySliceN",
    "gpu.nvidia.com/deviceID",
    "gpu.nvidia.com/vendorID",
    "gpu.nvidia.com/iommuFDEnabled",
    "gpu.nvidia.com/addressableMemory",
    "gpu.nvidia.com/gpuModuleId",
    "gpu.nvidia.com/partitionN",
];

/// The keys of the table in docs/how-to/dra.md, by what its second column says.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/how-to/dra.md");
    let page = fs::read_to_string(page).unwrap();
    let table = page.split_once("| key | of | here |\n").unwrap().1;
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in table.lines().skip(1).take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        assert!(
            cells.len() == 5 && !cells[3].is_empty(),
            "each key has a value or a reason: {line}"
        );
        let keys = cells[1].split(", ").map(|key| key.trim_matches('`').to_owned());
        all.entry(cells[2].to_owned()).or_default().extend(keys);
    }
    all
}

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
        for key in THERE_ALONE {
            let start = key.trim_end_matches('N');
            assert!(!small.union(&gpu).any(|key| key.starts_with(start)), "{driver}: {key}");
        }
        // A selector without has() that asks for one of these stops no allocation on a node with shares.
        for shared in [equal(0, 10), named(0)] {
            let shared = keys(&first(&shared, driver), driver);
            let missing: Vec<&&str> = OF_BOTH.iter().filter(|key| !shared.contains(**key)).collect();
            assert!(missing.is_empty(), "{driver}: {missing:?}");
        }
    }
}

/// As its own slices have them, for programs that read those and know no domains.
#[test]
fn under_nvidias_name_its_keys_have_no_domain() {
    let device = first(&mig(0, 7), "gpu.nvidia.com");
    let attributes = device.attributes.unwrap();
    assert_eq!(attributes["type"].string.as_deref(), Some("mig"));
    let capacity = device.capacity.unwrap();
    let mut names = attributes.keys().chain(capacity.keys());
    assert!(!names.any(|name| name.starts_with("gpu.nvidia.com/")));
}

#[test]
fn the_page_has_each_key_and_why_one_is_missing() {
    let table = [
        ("every device", OF_BOTH),
        ("MIG device", OF_MIG),
        ("here alone", HERE_ALONE),
        ("there alone", THERE_ALONE),
    ];
    let set = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
    let wanted: BTreeMap<String, BTreeSet<String>> =
        table.into_iter().map(|(of, keys)| (of.to_owned(), set(keys))).collect();
    assert_eq!(documented(), wanted);
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
