//! Which devices are healthy.

use crate::bed::{Bed, GPU, until};
use crate::offers::{replicas, whole};
use tranche_protocol::{Offer, OfferedParts};

#[test]
fn what_is_held_outside_kubernetes_is_unhealthy_until_it_is_released() {
    let bed = Bed::new(vec![replicas("GPU-0", 3)]);
    let _plugin = bed.plugin();
    bed.wait_allocatable(3);
    bed.broker.hold("GPU-0", Some("1"));
    bed.wait_allocatable(2);
    assert!(!bed.kubelet.devices(GPU)["GPU-0.1"]);
    bed.broker.hold("GPU-0", None);
    bed.wait_allocatable(0);
    assert_eq!(bed.kubelet.devices(GPU).len(), 3, "none is missing from the list");
    bed.broker.release("GPU-0");
    bed.wait_allocatable(3);
}

#[test]
fn one_unhealthy_gpu_leaves_the_others_and_comes_back() {
    let bed = Bed::new(vec![replicas("GPU-0", 2), replicas("GPU-1", 2)]);
    let _plugin = bed.plugin();
    bed.wait_allocatable(4);
    bed.broker.change(|offers| offers[0].unhealthy = Some("Xid 79".into()));
    bed.wait_allocatable(2);
    assert_eq!(bed.kubelet.admit("a", "c", GPU, 1).unwrap(), ["nvidia.com/gpu=GPU-1.0"]);
    bed.broker.change(|offers| offers[0].unhealthy = None);
    bed.wait_allocatable(4);
}

#[test]
fn a_device_of_two_resources_has_one_line_for_each_and_not_one_for_each_look() {
    let named = |name: &str| Offer {
        resource: format!("{GPU}.{name}"),
        parts: OfferedParts::Shares(vec![name.to_owned()]),
        ..whole("GPU-0")
    };
    let bed = Bed::new(vec![named("big"), named("small")]);
    let process = bed.process();
    process.wait_log("nvidia.com/gpu.small: registered with the kubelet");
    let mark = |why: &str| {
        bed.broker.change(|offers| {
            offers
                .iter_mut()
                .for_each(|offer| offer.unhealthy = Some(why.to_owned()))
        });
    };
    mark("Xid 79");
    process.wait_log("nvidia.com/gpu.small GPU-0: Xid 79");
    // What it looks at for the next time has the same fault.
    bed.broker.change(|offers| offers.push(whole("GPU-1")));
    process.wait_log("nvidia.com/gpu: registered with the kubelet");
    let log = process.log();
    let lines = log
        .iter()
        .filter(|line| line.starts_with(" WARN") && line.contains("Xid 79"));
    assert_eq!(lines.count(), 2, "{log:#?}");
}

#[test]
fn what_a_pod_has_stays_healthy_while_it_is_used() {
    let bed = Bed::new(vec![replicas("GPU-0", 2)]);
    let _plugin = bed.plugin();
    bed.wait_allocatable(2);
    bed.kubelet.admit("a", "c", GPU, 1).unwrap();
    until("it is reserved", || bed.broker.reserved("a").contains("GPU-0.0"));
    // Somebody outside takes all that is free.
    bed.broker.hold("GPU-0", Some("1"));
    bed.wait_allocatable(1);
    assert!(bed.kubelet.devices(GPU)["GPU-0.0"]);
}

#[test]
fn a_device_that_is_lost_is_unhealthy_while_a_pod_has_it_and_then_gone() {
    let bed = Bed::new(vec![whole("GPU-0"), whole("GPU-1")]);
    let _plugin = bed.plugin();
    bed.wait_allocatable(2);
    bed.kubelet.admit("a", "c", GPU, 1).unwrap();
    let lost = bed.kubelet.ids("a").into_iter().next().unwrap();
    until("it is reserved", || bed.broker.reserved("a").contains(&lost));
    bed.broker.change(|offers| offers.retain(|offer| offer.device != lost));
    bed.wait_allocatable(1);
    assert!(!bed.kubelet.devices(GPU)[&lost]);
    bed.kubelet.delete("a");
    until("it is not listed any more", || bed.kubelet.devices(GPU).len() == 1);
}

#[test]
fn a_list_is_sent_only_if_it_differs() {
    let bed = Bed::new(vec![replicas("GPU-0", 2)]);
    let _plugin = bed.plugin();
    bed.wait_allocatable(2);
    // Reservations change the offers, and not what the kubelet is shown.
    bed.kubelet.admit("a", "c", GPU, 1).unwrap();
    until("it is reserved", || !bed.broker.reserved("a").is_empty());
    let asked = bed.kubelet.state().asked;
    until("the plugin looked ten times", || bed.kubelet.state().asked > asked + 10);
    assert_eq!(bed.kubelet.state().received, 1);
}
