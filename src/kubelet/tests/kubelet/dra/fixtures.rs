//! What a broker answers about the devices of a node.

use crate::fake_api::NODE_UID;
use k8s_openapi::api::resource::v1::ResourceSlice;
use tranche_core::types::{MemorySize, Percent, Strategy};
use tranche_kubelet::dra::difference;
use tranche_kubelet::dra::slices::{DesiredPool, Form, NodeRef, slices};
use tranche_protocol::{DraDevice, DraDevices, DraEngines, DraGpu, DraHeld, DraMig, DraParts, DraShare};

/// The name of the driver.
pub(crate) const DRIVER: &str = "gpu.tranche.dev";

/// The memory of an H200, in MiB.
pub(crate) const MEMORY: u64 = 143_771;

pub(crate) fn node() -> NodeRef {
    NodeRef {
        name: "gpu1".into(),
        uid: NODE_UID.into(),
    }
}

pub(crate) fn devices(devices: impl IntoIterator<Item = DraDevice>) -> DraDevices {
    DraDevices {
        devices: devices.into_iter().collect(),
        driver: Some("570.124.06".into()),
        cuda: Some("12.8".into()),
        claims: Vec::new(),
        divided: Vec::new(),
    }
}

/// A GPU that is given as a whole.
pub(crate) fn whole(minor: u32) -> DraDevice {
    let gpu = DraGpu {
        name: format!("gpu-{minor}"),
        uuid: format!("GPU-40e78ff2-7a35-4b0c-96e9-c37df01e3{minor:03}"),
        index: Some(minor),
        minor,
        product: "NVIDIA H200".into(),
        brand: Some("Nvidia".into()),
        architecture: Some("Hopper".into()),
        compute_capability: Some("9.0".into()),
        pci: format!("0000:{:02x}:00.0", 0x41 + minor),
        numa: Some(minor / 4),
        pcie_root: Some(format!("pci0000:{:02x}", 0x40 + minor / 4)),
        addressing: Some("None".into()),
    };
    DraDevice {
        name: gpu.name.clone(),
        gpu,
        mig: None,
        memory: Some(MemorySize::from_mib(MEMORY)),
        multiprocessors: Some(132),
        strategy: Strategy::Dedicated,
        memory_guarantee: "hard".into(),
        compute_guarantee: "hard".into(),
        parts: None,
        unhealthy: None,
        out_of_service: None,
        held: Vec::new(),
    }
}

/// A MIG device on the GPU of this number.
pub(crate) fn mig(minor: u32, instance: u32) -> DraDevice {
    DraDevice {
        name: format!("gpu-{minor}-mig-1g-18gb-{instance}-0"),
        mig: Some(DraMig {
            uuid: Some(format!("MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87e{minor}{instance:02}")),
            profile: Some("1g.18gb".into()),
            engines: Some(DraEngines {
                copy: 1,
                decoders: 1,
                encoders: 0,
                jpeg: 1,
                ofa: 0,
            }),
        }),
        memory: Some(MemorySize::from_mib(16_384)),
        multiprocessors: Some(16),
        ..whole(minor)
    }
}

fn share(minor: u32, name: &str, mib: Option<u64>, compute: Option<u32>) -> DraShare {
    DraShare {
        device: format!("gpu-{minor}-share-{name}"),
        name: name.into(),
        memory: mib.map(MemorySize::from_mib),
        compute: compute.map(Percent::of_sum),
    }
}

/// A GPU that MPS divides into so many equal shares.
pub(crate) fn equal(minor: u32, count: u32) -> DraDevice {
    let (memory, compute) = (MEMORY / u64::from(count), 100 / count);
    let one = |n: u32| share(minor, &n.to_string(), Some(memory), Some(compute));
    DraDevice {
        strategy: Strategy::Mps,
        parts: Some(DraParts {
            equal: true,
            shares: (0..count).map(one).collect(),
            most_memory: Some(MemorySize::from_mib(MEMORY)),
            most_compute: Some(Percent::ALL),
            most_claims: 48,
        }),
        ..whole(minor)
    }
}

/// A GPU with three shares of their own names and sizes.
pub(crate) fn named(minor: u32) -> DraDevice {
    DraDevice {
        strategy: Strategy::Mps,
        parts: Some(DraParts {
            equal: false,
            shares: vec![
                share(minor, "big", Some(81_920), Some(60)),
                share(minor, "middle", Some(40_960), Some(30)),
                share(minor, "small", Some(20_480), Some(10)),
            ],
            most_memory: Some(MemorySize::from_mib(MEMORY)),
            most_compute: Some(Percent::ALL),
            most_claims: 48,
        }),
        ..whole(minor)
    }
}

/// A GPU whose so many shares run in turn, without limits.
pub(crate) fn turns(minor: u32, count: u32) -> DraDevice {
    DraDevice {
        strategy: Strategy::TimeSlicing,
        memory_guarantee: "none".into(),
        compute_guarantee: "none".into(),
        parts: Some(DraParts {
            equal: true,
            shares: (0..count).map(|n| share(minor, &n.to_string(), None, None)).collect(),
            most_memory: None,
            most_compute: None,
            most_claims: count,
        }),
        ..whole(minor)
    }
}

/// What a container of podman holds.
pub(crate) fn held(share: Option<&str>, mib: Option<u64>, compute: Option<u32>) -> DraHeld {
    DraHeld {
        share: share.map(str::to_owned),
        memory: mib.map(MemorySize::from_mib),
        compute: compute.map(Percent::of_sum),
        by: "container 262bf9f7e5a8".into(),
    }
}

/// The objects of a pool at its first generation.
pub(crate) fn objects(pool: &DesiredPool, driver: &str, node: &NodeRef) -> Vec<ResourceSlice> {
    let all = pool.slices.iter();
    all.map(|slice| slice.object(driver, node, difference::pool(node, 1, &pool.slices)))
        .collect()
}

/// What the devices are published as.
pub(crate) fn published(devices: &DraDevices, form: Form) -> Vec<ResourceSlice> {
    objects(&slices(devices, DRIVER, &node(), form), DRIVER, &node())
}
