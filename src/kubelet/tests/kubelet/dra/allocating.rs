//! What the scheduler does with the slices.

use super::allocator::{Allocator, Request};
use super::checker::check;
use super::fixtures::{MEMORY, devices, equal, held, mig, named, published, turns, whole};
use k8s_openapi::api::resource::v1::{
    Counter, CounterSet, Device, DeviceAttribute, DeviceCounterConsumption, ResourceSlice,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use tranche_core::types::MemorySize;
use tranche_kubelet::dra::slices::Form;
use tranche_protocol::DraDevice;

fn full(all: impl IntoIterator<Item = DraDevice>) -> Allocator {
    Allocator::new(published(&devices(all), Form::Full))
}

fn plain(all: impl IntoIterator<Item = DraDevice>) -> Allocator {
    Allocator::new(published(&devices(all), Form::Plain))
}

fn gets(allocator: &mut Allocator, capacity: &[(&'static str, &'static str)]) -> bool {
    allocator.allocate(&Request::amounts(capacity)).is_some()
}

#[test]
fn unequal_amounts_fill_a_device_exactly() {
    let mut allocator = full([equal(0, 10)]);
    assert!(gets(&mut allocator, &[("memory", "8Gi"), ("compute", "30")]));
    assert!(gets(&mut allocator, &[("memory", "80Gi"), ("compute", "45")]));
    // 143771 MiB without 88 GiB.
    assert!(!gets(&mut allocator, &[("memory", "53660Mi"), ("compute", "25")]));
    assert!(!gets(&mut allocator, &[("memory", "53659Mi"), ("compute", "26")]));
    assert!(gets(&mut allocator, &[("memory", "53659Mi"), ("compute", "25")]));
    assert!(!gets(&mut allocator, &[("memory", "1Mi"), ("compute", "1")]));
    assert_eq!(MEMORY, 8 * 1024 + 80 * 1024 + 53_659);
}

#[test]
fn a_claim_without_amounts_has_a_share_of_the_policy() {
    let mut allocator = full([equal(0, 10)]);
    let got = (0..20).take_while(|_| gets(&mut allocator, &[])).count();
    assert_eq!(got, 10);
    // Amounts are rounded up to whole MiB and percent.
    let mut allocator = full([equal(0, 10)]);
    let got = (0..200)
        .take_while(|_| gets(&mut allocator, &[("memory", "1"), ("compute", "100m")]))
        .count();
    assert_eq!(got, 48, "one claim for each client of MPS");
}

#[test]
fn an_amount_that_no_device_has_is_refused() {
    let mut allocator = full([equal(0, 10)]);
    assert!(!gets(&mut allocator, &[("memory", "143772Mi")]));
    assert!(!gets(&mut allocator, &[("compute", "101")]));
    assert!(!gets(&mut allocator, &[("engines", "1")]));
    let mut overcommitted = equal(0, 10);
    overcommitted.parts.as_mut().unwrap().most_memory = Some(MemorySize::from_mib(2 * MEMORY));
    let mut allocator = full([overcommitted]);
    assert!(!gets(&mut allocator, &[("memory", "143772Mi")]));
    assert!(gets(&mut allocator, &[("memory", "143771Mi")]));
    assert!(gets(&mut allocator, &[("memory", "143771Mi")]));
}

#[test]
fn a_plain_share_never_goes_out_twice() {
    for mut allocator in [plain([equal(0, 4)]), full([turns(0, 4)]), plain([turns(0, 4)])] {
        assert_eq!((0..9).take_while(|_| gets(&mut allocator, &[])).count(), 4);
    }
    let mut allocator = full([named(0)]);
    let big = Request {
        selector: &|device| text(device, "gpu.tranche.dev", "share") == Some("big"),
        ..Request::amounts(&[])
    };
    assert_eq!(allocator.allocate(&big), Some(vec!["gpu-0-share-big".to_owned()]));
    assert_eq!(allocator.allocate(&big), None);
    let two = Request {
        count: 2,
        ..Request::amounts(&[])
    };
    assert_eq!(allocator.allocate(&two).map(|names| names.len()), Some(2));
    let mut allocator = full([whole(0), whole(1)]);
    let wanted = ["gpu-0", "gpu-1"].map(str::to_owned).to_vec();
    assert_eq!(allocator.allocate(&two), Some(wanted));
    assert_eq!(allocator.allocate(&Request::amounts(&[])), None);
}

#[test]
fn what_podman_holds_is_less_for_the_scheduler() {
    let mut device = equal(0, 10);
    let mut allocator = full([device.clone()]);
    assert!(gets(&mut allocator, &[("memory", "40Gi"), ("compute", "20")]));
    device.held = vec![held(Some("0"), Some(60 * 1024), Some(50)), held(Some("1"), None, None)];
    let slices = published(&devices([device.clone()]), Form::Full);
    assert_eq!(check(&slices), [""; 0]);
    allocator.publish(slices);
    // 143771 MiB without 100 GiB and the share of the policy, 14377 MiB and 10 %.
    assert!(!gets(&mut allocator, &[("memory", "26995Mi"), ("compute", "20")]));
    assert!(!gets(&mut allocator, &[("memory", "26994Mi"), ("compute", "21")]));
    assert!(gets(&mut allocator, &[("memory", "26994Mi"), ("compute", "20")]));
    // A hold of nearly all leaves less than a share: a smaller claim still fits.
    device.held = vec![held(Some("0"), Some(MEMORY - 1000), Some(10))];
    let slices = published(&devices([device.clone()]), Form::Full);
    assert_eq!(check(&slices), [""; 0]);
    let mut allocator = Allocator::new(slices);
    assert!(!gets(&mut allocator, &[]));
    assert!(gets(&mut allocator, &[("memory", "1000Mi")]));
    // All of it is a taint, also if somebody holds the device without a share.
    for hold in [held(Some("0"), Some(MEMORY), Some(10)), held(None, None, None)] {
        device.held = vec![hold];
        let mut allocator = full([device.clone()]);
        assert!(!gets(&mut allocator, &[("memory", "1Mi"), ("compute", "1")]));
    }
}

#[test]
fn no_claim_gets_what_is_held_or_unhealthy() {
    for change in [
        (|device: &mut DraDevice| device.held = vec![held(Some("big"), None, None)]) as fn(&mut DraDevice),
        |device| device.unhealthy = Some("Xid 79".into()),
    ] {
        let (mut whole, mut shares) = (whole(0), named(1));
        change(&mut whole);
        change(&mut shares);
        let left = if shares.unhealthy.is_some() { 0 } else { 2 };
        for mut allocator in [full([whole.clone(), shares.clone()]), plain([whole, shares])] {
            assert_eq!((0..9).take_while(|_| gets(&mut allocator, &[])).count(), left);
        }
    }
}

/// A GPU for many claims, and a MIG partition of it that a claim would create.
fn partitions() -> Vec<ResourceSlice> {
    let counters = |memory: &str| {
        let counter = Counter {
            value: Quantity(memory.into()),
        };
        [("memory".to_owned(), counter)].into()
    };
    let consumes = |memory| {
        Some(vec![DeviceCounterConsumption {
            counter_set: "gpu-0".into(),
            counters: counters(memory),
        }])
    };
    let mut slices = published(&devices([equal(0, 10), mig(1, 7)]), Form::Full);
    for (slice, memory) in slices.iter_mut().zip(["140Gi", "18Gi"]) {
        slice.spec.devices.as_mut().unwrap()[0].consumes_counters = consumes(memory);
    }
    let mut sets = slices[0].clone();
    sets.spec.devices = None;
    sets.spec.shared_counters = Some(vec![CounterSet {
        name: "gpu-0".into(),
        counters: counters("140Gi"),
    }]);
    sets.metadata.generate_name = Some("000-".into());
    slices.insert(0, sets);
    slices
        .iter_mut()
        .for_each(|slice| slice.spec.pool.resource_slice_count = 3);
    slices
}

#[test]
fn a_partition_and_the_shared_gpu_exclude_each_other() {
    assert_eq!(check(&partitions()), [""; 0]);
    let gpu = Request {
        selector: &|device| text(device, "gpu.nvidia.com", "type") == Some("gpu"),
        ..Request::amounts(&[])
    };
    let mig = Request {
        selector: &|device| text(device, "gpu.nvidia.com", "type") == Some("mig"),
        ..Request::amounts(&[])
    };
    let mut allocator = Allocator::new(partitions());
    // The counters are charged once for all shares.
    assert!(allocator.allocate(&gpu).is_some() && allocator.allocate(&gpu).is_some());
    assert_eq!(allocator.allocate(&mig), None);
    let mut allocator = Allocator::new(partitions());
    assert!(allocator.allocate(&mig).is_some());
    assert_eq!(allocator.allocate(&gpu), None);
}

fn attribute<'a>(device: &'a Device, domain: &str, name: &str) -> Option<&'a DeviceAttribute> {
    device.attributes.as_ref()?.get(&format!("{domain}/{name}"))
}

fn text<'a>(device: &'a Device, domain: &str, name: &str) -> Option<&'a str> {
    attribute(device, domain, name)?.string.as_deref()
}

#[test]
fn the_selectors_of_nvidias_manifests_are_satisfied() {
    const NVIDIA: &str = "gpu.nvidia.com";
    let mut small = mig(1, 7);
    small.mig.as_mut().unwrap().profile = Some("1g.5gb".into());
    let mut slices = published(&devices([whole(0), small.clone(), equal(2, 10)]), Form::Full);
    // Classes gpu.nvidia.com and mig.nvidia.com; quickstart/gpu-test4; gpu-test6; the classes of extended resources.
    let selectors: &[fn(&Device) -> bool] = &[
        |device| text(device, NVIDIA, "type") == Some("gpu"),
        |device| text(device, NVIDIA, "type") == Some("mig"),
        |device| text(device, NVIDIA, "profile") == Some("1g.5gb"),
        |device| {
            let index = attribute(device, NVIDIA, "index").and_then(|index| index.int);
            let product = text(device, NVIDIA, "productName").map(str::to_lowercase);
            product.is_some_and(|product| product.contains("h200")) && index.is_some_and(|index| index < 4)
        },
        |device| text(device, NVIDIA, "architecture") == Some("Hopper"),
        |device| attribute(device, NVIDIA, "driverVersion").is_some_and(|v| v.version.as_deref() == Some("570.124.6")),
        |device| {
            attribute(device, NVIDIA, "cudaComputeCapability").is_some_and(|v| v.version.as_deref() == Some("9.0.0"))
        },
        |device| attribute(device, NVIDIA, "cudaDriverVersion").is_some_and(|v| v.version.as_deref() == Some("12.8.0")),
        |device| text(device, "resource.kubernetes.io", "pciBusID").is_some(),
        |device| attribute(device, "resource.kubernetes.io", "numaNode").is_some_and(|numa| numa.int == Some(0)),
        |device| text(device, "gpu.tranche.dev", "guaranteeMemory") == Some("hard"),
    ];
    for (place, selector) in selectors.iter().enumerate() {
        let request = Request {
            selector,
            ..Request::amounts(&[])
        };
        assert!(
            Allocator::new(slices.clone()).allocate(&request).is_some(),
            "selector {place}"
        );
    }
    // matchAttribute gpu.nvidia.com/parentUUID.
    let device = &slices[1].spec.devices.as_mut().unwrap()[0];
    assert_eq!(text(device, NVIDIA, "parentUUID"), Some(small.gpu.uuid.as_str()));
    // consumable-shares: memory-sharing and integer-sharing.
    let mut allocator = full([equal(0, 10)]);
    assert!(gets(&mut allocator, &[("memory", "4Gi")]));
    assert!(gets(&mut allocator, &[("shares", "1")]));
}
