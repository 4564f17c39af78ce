//! What a container gets.

use crate::bed::{Bed, GPU};
use crate::offers::{replicas, whole};
use tonic::Code;
use tranche_kubelet::settings::Settings;
use tranche_protocol::{OfferedParts, PodPlacement};

fn owned(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[test]
fn several_shares_of_one_container_are_on_one_gpu() {
    let bed = Bed::new(vec![replicas("GPU-0", 4), replicas("GPU-1", 4)]);
    let _plugin = bed.plugin();
    bed.wait_allocatable(8);
    let one = bed.kubelet.admit("a", "c", GPU, 1).unwrap();
    assert_eq!(one, ["nvidia.com/gpu=GPU-0.0"]);
    // Three of GPU-0 are left, and it is in use already.
    let three = bed.kubelet.admit("b", "c", GPU, 3).unwrap();
    assert_eq!(
        three,
        [
            "nvidia.com/gpu=GPU-0.1",
            "nvidia.com/gpu=GPU-0.2",
            "nvidia.com/gpu=GPU-0.3"
        ]
    );
    let next = bed.kubelet.admit("c", "c", GPU, 2).unwrap();
    assert_eq!(next, ["nvidia.com/gpu=GPU-1.0", "nvidia.com/gpu=GPU-1.1"]);
}

#[test]
fn spread_takes_the_freest_gpu() {
    let bed = Bed::new(vec![replicas("GPU-0", 2), replicas("GPU-1", 2)]);
    let mut settings = bed.settings();
    settings.placement = Some(PodPlacement::Spread);
    let _plugin = crate::bed::Plugin::start(settings);
    bed.wait_allocatable(4);
    assert_eq!(bed.kubelet.admit("a", "c", GPU, 1).unwrap(), ["nvidia.com/gpu=GPU-0.0"]);
    assert_eq!(bed.kubelet.admit("b", "c", GPU, 1).unwrap(), ["nvidia.com/gpu=GPU-1.0"]);
}

/// The policy of the node says it, unless the option does; and a policy that changes counts for the next container.
#[test]
fn the_policy_may_distribute_the_shares_of_one_container() {
    let bed = Bed::new(vec![replicas("GPU-0", 4), replicas("GPU-1", 4)]);
    bed.broker.node().placement = Some(PodPlacement::Distributed);
    {
        let _plugin = bed.plugin();
        bed.wait_allocatable(8);
        let two = bed.kubelet.admit("a", "c", GPU, 2).unwrap();
        assert_eq!(two, ["nvidia.com/gpu=GPU-0.0", "nvidia.com/gpu=GPU-1.0"]);
    }
    let settings = Settings {
        placement: Some(PodPlacement::Packed),
        ..bed.settings()
    };
    let _plugin = crate::bed::Plugin::start(settings);
    bed.wait_allocatable(8);
    let two = bed.kubelet.admit("b", "c", GPU, 2).unwrap();
    assert_eq!(two, ["nvidia.com/gpu=GPU-0.1", "nvidia.com/gpu=GPU-0.2"]);
}

#[test]
fn a_preference_is_never_an_error() {
    let bed = Bed::new(vec![replicas("GPU-0", 4)]);
    let _plugin = bed.plugin();
    bed.wait_allocatable(4);
    let prefer = |free: &[&str], must: &[&str], size| bed.kubelet.prefer(GPU, &owned(free), &owned(must), size);
    for (free, must, size) in [
        (&[][..], &[][..], 1),
        (&["GPU-0.0"], &[], 2),
        (&["GPU-0.0"], &["GPU-0.0", "GPU-0.1"], 1),
        (&["GPU-0.0"], &[], -1),
        (&["GPU-0.0"], &[], i32::MIN),
        (&["GPU-0.0"], &[], i32::MAX),
    ] {
        assert_eq!(prefer(free, must, size).unwrap(), [""; 0], "{free:?} {must:?} {size}");
    }
    assert_eq!(prefer(&["", "\0", "GPU-9::3"], &[], 3).unwrap().len(), 3);
    assert_eq!(
        prefer(&["GPU-0.3", "other"], &["GPU-0.1"], 2).unwrap(),
        ["GPU-0.1", "GPU-0.3"]
    );
}

#[test]
fn what_cannot_be_allocated_is_refused_in_one_line() {
    let mut mps = replicas("GPU-0", 4);
    mps.one_share = true;
    let bed = Bed::new(vec![mps]);
    let _plugin = bed.plugin();
    bed.wait_allocatable(4);
    let refused = bed.kubelet.allocate(GPU, &["GPU-0.0", "GPU-7"]).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert_eq!(
        refused.message(),
        r#"invalid request: device "GPU-7" was never offered"#
    );
    let refused = bed.kubelet.admit("a", "c", GPU, 2).unwrap_err();
    assert_eq!(
        refused.message(),
        "invalid request: maximum request size for shared resources is 1; found 2"
    );
    assert_eq!(bed.kubelet.admit("a", "c", GPU, 1).unwrap(), ["nvidia.com/gpu=GPU-0.0"]);
}

#[test]
fn a_device_that_the_kubelet_chose_before_it_was_withdrawn_is_allocated() {
    let bed = Bed::new(vec![whole("GPU-0"), whole("GPU-1")]);
    let _plugin = bed.plugin();
    bed.wait_allocatable(2);
    bed.broker.change(|offers| {
        offers.pop();
    });
    bed.wait_allocatable(1);
    // The start of its container is where it is refused, and the pod stays.
    assert_eq!(bed.kubelet.allocate(GPU, &["GPU-1"]).unwrap(), ["nvidia.com/gpu=GPU-1"]);
}

#[test]
fn an_allocation_does_not_need_the_broker() {
    let mut any = replicas("GPU-0", 4);
    any.parts = OfferedParts::Replicas { count: 4, named: false };
    let bed = Bed::new(vec![any]);
    let _plugin = bed.plugin();
    bed.wait_allocatable(4);
    bed.broker.node().is_broken = true;
    assert_eq!(
        bed.kubelet.admit("a", "c", GPU, 3).unwrap(),
        ["nvidia.com/gpu=GPU-0.any"]
    );
    // Its start does: it is refused with the reason until the broker is well.
    let refused = bed.kubelet.run("a", "c", GPU).unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::FailedPrecondition, "plan: cannot be read")
    );
    assert_eq!(bed.kubelet.allocatable(GPU), 4, "the last good offers stay");
    bed.broker.node().is_broken = false;
    bed.kubelet.run("a", "c", GPU).unwrap();
}

#[test]
fn a_broker_that_does_not_answer_fails_no_pod() {
    let mut bed = Bed::new(vec![replicas("GPU-0", 4)]);
    let mut process = bed.process();
    bed.wait_allocatable(4);
    bed.broker.node().is_silent = true;
    assert_eq!(bed.kubelet.admit("a", "c", GPU, 1).unwrap(), ["nvidia.com/gpu=GPU-0.0"]);
    bed.kubelet.stop();
    bed.kubelet.start();
    bed.wait_allocatable(4);
    // Well before the kubelet's own limit, so that the pod's event has the reason.
    let refused = bed.kubelet.run("a", "c", GPU).unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(
        refused.message().contains("broker.sock: the broker does not answer"),
        "{}",
        refused.message()
    );
    process.signal("TERM");
    assert_eq!(process.ended().code(), Some(0));
    assert_eq!(bed.sockets(), ["kubelet.sock"]);
}
