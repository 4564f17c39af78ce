//! What a real kubelet sent and answered, byte by byte, and what the plugin makes of it. `tests/data/README.md` says
//! how it was recorded.

pub(crate) mod frames;
mod kubelet;

use crate::bed::{Bed, GPU};
use crate::offers::replicas;
use kubelet::RecordedKubelet;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tokio::runtime::{Builder, Runtime};
use tranche_protocol::Offer;

/// What the kubelet sent to the plugin, on the connection that it opened when the plugin registered.
const CALLS: &str = include_str!("../data/calls.txt");
/// What it answered to the registration.
const REGISTERED: &str = include_str!("../data/registered.txt");
/// What it answered to List.
const PODS: &str = include_str!("../data/pods.txt");
/// What it answered to GetAllocatableResources.
const ALLOCATABLE: &str = include_str!("../data/allocatable.txt");

/// The GPUs of the node, each of which was split into two equal parts.
const FIRST: &str = "GPU-f881eb6e-fca4-a164-1150-26fd4f2cd899";
const SECOND: &str = "GPU-1a4b176c-6cef-223e-2cff-bcafe16f39ce";

fn offers() -> Vec<Offer> {
    vec![replicas(FIRST, 2), replicas(SECOND, 2)]
}

fn ids(device: &str, parts: &[u32]) -> BTreeSet<String> {
    parts.iter().map(|part| format!("{device}.{part}")).collect()
}

fn all_ids() -> BTreeSet<String> {
    &ids(FIRST, &[0, 1]) | &ids(SECOND, &[0, 1])
}

fn names(ids: &BTreeSet<String>) -> BTreeSet<String> {
    ids.iter().map(|id| format!("{GPU}={id}")).collect()
}

fn runtime() -> Runtime {
    Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn every_call_of_a_real_kubelet_is_answered() {
    let calls = frames::frames(CALLS)
        .iter()
        .filter(|frame| frame.ends_request())
        .count();
    assert_eq!(calls, 8, "two, and three for each pod");
    let bed = Bed::asleep(offers());
    bed.broker.listen();
    let (mut kubelet, _plugin) = RecordedKubelet::start(&bed);
    assert!(kubelet.options.pre_start_required && kubelet.options.get_preferred_allocation_available);

    let (list, _lists) = kubelet.first_list();
    assert_eq!(list.keys().cloned().collect::<BTreeSet<_>>(), all_ids());
    assert!(list.values().all(|health| health == "Healthy"), "{list:?}");

    // The requests have the ids, and what the client of this test sends does not.
    let one = ids(FIRST, &[0]);
    assert_eq!(kubelet.prefer(), one);
    assert_eq!(kubelet.allocate(), names(&one));
    kubelet.list_pods();
    kubelet.pre_start();
    assert_eq!(bed.broker.reserved("one-node1"), one);

    let two = ids(SECOND, &[0, 1]);
    assert_eq!(kubelet.prefer(), two, "one GPU has two free parts");
    assert_eq!(kubelet.allocate(), names(&two));
    kubelet.pre_start();
    assert_eq!(bed.broker.reserved("two-node1"), two);
}

/// A directory of the kubelet, in which nothing but the socket of PodResources is.
fn pod_resources(recording: &str) -> tempfile::TempDir {
    let top = tempfile::tempdir().unwrap();
    std::fs::create_dir(top.path().join("pod-resources")).unwrap();
    frames::serve(&top.path().join("pod-resources/kubelet.sock"), recording, || {});
    top
}

#[test]
fn what_a_real_kubelet_answers_to_a_registration_is_read() {
    let top = tempfile::tempdir().unwrap();
    frames::serve(&top.path().join("kubelet.sock"), REGISTERED, || {});
    let registered = tranche_kubelet::kubelet::register(top.path(), "tranche-nvidia.com_gpu.sock", GPU);
    runtime().block_on(registered).unwrap();
}

#[test]
fn the_pods_of_a_real_kubelet_are_read_with_their_ids() {
    let top = pod_resources(PODS);
    let list = runtime().block_on(tranche_kubelet::kubelet::list(top.path())).unwrap();
    let mut found = BTreeMap::new();
    for (pod, ids) in list {
        found.insert(pod.to_string(), ids.into_iter().collect::<BTreeSet<_>>());
    }
    let wanted = [
        ("pod default/none-node1", BTreeSet::new()),
        ("pod default/one-node1", ids(FIRST, &[0])),
        ("pod default/two-node1", ids(SECOND, &[0, 1])),
    ];
    assert_eq!(found, wanted.map(|(pod, ids)| (pod.to_owned(), ids)).into());
}

#[test]
fn the_healthy_ids_of_a_real_kubelet_are_read() {
    let found = |dir: &Path| runtime().block_on(tranche_kubelet::kubelet::allocatable(dir)).unwrap();
    let top = pod_resources(ALLOCATABLE);
    assert_eq!(found(top.path()), [(GPU.to_owned(), all_ids())].into());
}
