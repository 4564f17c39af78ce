//! A large node.

use crate::bed::{Bed, GPU, until};
use crate::offers::{replicas, whole};
use std::time::Instant;
use tranche_core::broker::MOST_BYTES;
use tranche_protocol::{Offer, OfferedParts};

const MIG: &str = "nvidia.com/mig-1g.10gb.shared";

/// 64 GPUs with 7 MIG instances of 10 shares.
fn offers() -> Vec<Offer> {
    let instance = |gpu: usize, n: usize| Offer {
        resource: MIG.into(),
        gpu: format!("GPU-4f1b7e3c-7a0e-5c5e-9f0c-0000000000{gpu:02}"),
        numa: Some(u32::from(gpu >= 32)),
        ..replicas(&format!("MIG-6f5b7e3c-7a0e-5c5e-9f0c-00000000{n:02}{gpu:02}"), 10)
    };
    (0..64).flat_map(|gpu| (0..7).map(move |n| instance(gpu, n))).collect()
}

#[test]
fn a_node_with_64_gpus_of_70_shares_works() {
    let bed = Bed::new(offers());
    let process = bed.process();
    let start = Instant::now();
    // The kubelet reads no message of more than 4 MiB, and neither does this one.
    until("all are allocatable", || bed.kubelet.allocatable(MIG) == 4480);
    eprintln!("4480 devices: allocatable after {:?}", start.elapsed());
    let start = Instant::now();
    let names = bed.kubelet.admit("a", "c", MIG, 70).unwrap();
    eprintln!("preference and allocation of 70: {:?}", start.elapsed());
    let gpus: std::collections::BTreeSet<&str> =
        names.iter().map(|name| &name[name.len() - 4..name.len() - 2]).collect();
    assert_eq!((names.len(), gpus.len()), (70, 1), "all are on one GPU");
    bed.kubelet.run("a", "c", MIG).unwrap();
    bed.kubelet.admit("b", "c", MIG, 4410).unwrap();
    bed.kubelet.run("b", "c", MIG).unwrap();
    assert_eq!(bed.broker.reserved("b").len(), 4410);
    let longest = bed.broker.node().longest;
    assert!(longest <= MOST_BYTES, "{longest}");
    eprintln!("memory: {} KiB", process.memory());
}

/// More shares than the kubelet reads in one list: it gets as many as it reads, and the program stays within the memory
/// that the chart gives it.
#[test]
fn as_many_shares_are_allocatable_as_the_kubelet_reads() {
    let split = |gpu: usize| Offer {
        parts: OfferedParts::Replicas {
            count: 16_384,
            named: false,
        },
        ..whole(&format!("GPU-4f1b7e3c-7a0e-5c5e-9f0c-0000000000{gpu:02}"))
    };
    let bed = Bed::new((0..8).map(split).collect());
    let process = bed.process();
    until("many are allocatable", || bed.kubelet.allocatable(GPU) > 50_000);
    let names = bed.kubelet.admit("a", "c", GPU, 3).unwrap();
    assert_eq!(names.len(), 1, "{names:?}");
    bed.kubelet.run("a", "c", GPU).unwrap();
    let memory = process.memory();
    eprintln!("memory: {memory} KiB");
    assert!(memory < 64 << 10, "{memory} KiB");
}
