//! What is reserved for pods, and until when.

use crate::bed::{Bed, GPU, until};
use crate::offers::{replicas, taken};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tonic::Code;

fn set(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[test]
fn an_allocation_is_reserved_under_the_name_of_its_pod_before_its_container_starts() {
    let bed = Bed::new(vec![replicas("GPU-0", 4)]);
    let _plugin = bed.plugin();
    bed.wait_allocatable(4);
    bed.kubelet.admit("a", "init", GPU, 1).unwrap();
    bed.kubelet.admit("a", "main", GPU, 2).unwrap();
    until("all is reserved", || bed.broker.reserved("a") == bed.kubelet.ids("a"));
    assert_eq!(bed.kubelet.ids("a").len(), 3);
}

#[test]
fn a_start_is_refused_while_the_device_is_held_outside_and_accepted_after_its_release() {
    let bed = Bed::new(vec![replicas("GPU-0", 1)]);
    let mut settings = bed.settings();
    // The broker is asked for nothing in between.
    settings.times.period = Duration::from_secs(3600);
    let _plugin = crate::bed::Plugin::start(settings);
    bed.wait_allocatable(1);
    bed.kubelet.admit("a", "c", GPU, 1).unwrap();
    // Between the kubelet's choice and the start of the container.
    bed.broker.node().offers[0].taken = vec![taken(None, None)];
    let refused = bed.kubelet.run("a", "c", GPU).unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert_eq!(refused.message(), "device: GPU-0.0 is held by container 262bf9f7e5a8");
    bed.broker.release("GPU-0");
    assert_eq!(bed.kubelet.run("a", "c", GPU).unwrap(), ["nvidia.com/gpu=GPU-0.0"]);
    assert_eq!(bed.broker.reserved("a"), set(&["GPU-0.0"]));
}

#[test]
fn a_start_without_a_pod_is_refused_with_the_ids() {
    let bed = Bed::new(vec![replicas("GPU-0", 1)]);
    let _plugin = bed.plugin();
    bed.wait_allocatable(1);
    bed.kubelet.admit("a", "c", GPU, 1).unwrap();
    bed.kubelet.state().missing.insert("a".into(), usize::MAX);
    let refused = bed.kubelet.run("a", "c", GPU).unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert_eq!(refused.message(), "the kubelet lists no pod that has GPU-0.0");
    // It is in a list that comes a moment later.
    bed.kubelet.state().missing.insert("a".into(), 2);
    bed.kubelet.run("a", "c", GPU).unwrap();
    bed.kubelet.state().hides_pods = true;
    let refused = bed.kubelet.run("a", "c", GPU).unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(
        refused.message().contains("the kubelet is starting"),
        "{}",
        refused.message()
    );
}

#[test]
fn a_container_restarts_while_the_plugin_is_away() {
    let bed = Bed::new(vec![replicas("GPU-0", 2)]);
    let plugin = bed.plugin();
    bed.wait_allocatable(2);
    let before = bed.kubelet.admit("a", "c", GPU, 1).unwrap();
    bed.kubelet.run("a", "c", GPU).unwrap();
    plugin.stop();
    bed.wait_allocatable(0);
    assert_eq!(bed.kubelet.run("a", "c", GPU).unwrap(), before);
    // The ledger may have lost it, too: the plugin reserves it when it is back.
    bed.broker.node().offers[0].taken.clear();
    let _plugin = bed.plugin();
    bed.wait_allocatable(2);
    until("it is reserved again", || {
        bed.broker.reserved("a") == bed.kubelet.ids("a")
    });
    assert!(bed.broker.node().asked.iter().all(|asked| asked.starts_with("reserve")));
}

#[test]
fn what_a_deleted_pod_had_is_given_up_after_a_time() {
    let bed = Bed::new(vec![replicas("GPU-0", 4)]);
    let _plugin = bed.plugin();
    bed.wait_allocatable(4);
    for pod in ["a", "b"] {
        bed.kubelet.admit(pod, "c", GPU, 2).unwrap();
        bed.kubelet.run(pod, "c", GPU).unwrap();
    }
    let had = bed.kubelet.ids("a");
    let deleted = Instant::now();
    bed.kubelet.delete("a");
    until("it is given up", || bed.broker.reserved("a").is_empty());
    assert!(deleted.elapsed() >= bed.settings().times.absent);
    let ids: Vec<String> = had.into_iter().collect();
    assert_eq!(
        bed.broker.node().asked.last().unwrap(),
        &format!("give up a {}", ids.join(","))
    );
    assert_eq!(bed.broker.reserved("b"), bed.kubelet.ids("b"));
}

#[test]
fn a_pod_that_is_missing_from_some_lists_keeps_what_it_has() {
    let bed = Bed::new(vec![replicas("GPU-0", 1)]);
    let mut settings = bed.settings();
    // So long that a slow machine gets through the lists in the meantime.
    settings.times.absent = Duration::from_secs(30);
    let _plugin = crate::bed::Plugin::start(settings);
    bed.wait_allocatable(1);
    bed.kubelet.admit("a", "c", GPU, 1).unwrap();
    bed.kubelet.run("a", "c", GPU).unwrap();
    bed.kubelet.state().missing.insert("a".into(), 3);
    until("it was missing", || bed.kubelet.state().missing.is_empty());
    let asked = bed.kubelet.state().asked;
    until("two more lists", || bed.kubelet.state().asked > asked + 2);
    assert_eq!(bed.broker.reserved("a"), set(&["GPU-0.0"]));
}

#[test]
fn nothing_is_given_up_while_the_kubelet_does_not_answer() {
    let mut bed = Bed::new(vec![replicas("GPU-0", 1)]);
    let _plugin = bed.plugin();
    bed.wait_allocatable(1);
    bed.kubelet.admit("a", "c", GPU, 1).unwrap();
    bed.kubelet.run("a", "c", GPU).unwrap();
    bed.kubelet.state().hides_pods = true;
    bed.kubelet.delete("a");
    let hidden = Instant::now();
    let asked = bed.kubelet.state().asked;
    until("it was asked for longer than a pod may be missing", || {
        hidden.elapsed() > 2 * bed.settings().times.absent && bed.kubelet.state().asked > asked + 3
    });
    bed.kubelet.stop();
    assert_eq!(bed.broker.reserved("a"), set(&["GPU-0.0"]));
    bed.kubelet.state().hides_pods = false;
    bed.kubelet.start();
    until("it is given up", || bed.broker.reserved("a").is_empty());
}

#[test]
fn a_device_that_the_kubelet_gave_to_another_pod_is_that_ones_at_once() {
    let bed = Bed::new(vec![replicas("GPU-0", 1)]);
    let mut settings = bed.settings();
    settings.times.absent = Duration::from_secs(3600);
    let _plugin = crate::bed::Plugin::start(settings);
    bed.wait_allocatable(1);
    bed.kubelet.admit("a", "c", GPU, 1).unwrap();
    bed.kubelet.run("a", "c", GPU).unwrap();
    bed.kubelet.delete("a");
    bed.kubelet.admit("b", "c", GPU, 1).unwrap();
    bed.kubelet.run("b", "c", GPU).unwrap();
    assert_eq!(bed.broker.reserved("b"), set(&["GPU-0.0"]));
    assert_eq!(bed.broker.reserved("a"), set(&[]));
}

#[test]
fn after_a_reboot_the_pods_of_the_checkpoint_keep_their_reservations() {
    let mut bed = Bed::new(vec![replicas("GPU-0", 2)]);
    let plugin = bed.plugin();
    bed.wait_allocatable(2);
    bed.kubelet.admit("a", "c", GPU, 1).unwrap();
    bed.kubelet.run("a", "c", GPU).unwrap();
    drop(plugin);
    bed.kubelet.stop();
    // The kubelet and the plugin start in any order; the broker kept the reservation.
    let _plugin = bed.plugin();
    bed.kubelet.state().missing.insert("a".into(), 2);
    bed.kubelet.start();
    bed.wait_allocatable(2);
    assert_eq!(bed.kubelet.run("a", "c", GPU).unwrap(), ["nvidia.com/gpu=GPU-0.0"]);
    assert_eq!(bed.broker.reserved("a"), set(&["GPU-0.0"]));
    assert!(bed.broker.node().asked.iter().all(|asked| asked.starts_with("reserve")));
}
