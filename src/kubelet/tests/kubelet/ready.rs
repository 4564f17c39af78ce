//! The probe of the chart: a pod is ready when what it serves is published and registered, and not before.

use crate::bed::{Bed, program, until};
use crate::dra::fixtures::{DRIVER, devices, whole};
use crate::driver_node::DriverNode;
use crate::fake_api::NODE;
use std::path::Path;

/// What the probe says: `Ok`, or the reason.
fn probe(file: &Path) -> Result<(), String> {
    let output = program().args(["ready", "--ready-file"]).arg(file).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    output.status.success().then_some(()).ok_or(text)
}

#[track_caller]
fn wait_missing(file: &Path, part: &str) {
    until(&format!("the probe names {part}"), || {
        probe(file).is_err_and(|why| why.contains(part))
    });
}

#[test]
fn a_pod_is_ready_when_its_devices_are_published_and_registered() {
    let node = DriverNode::new(devices([whole(0)]));
    node.api.cluster().slices.refuses = 503;
    node.api.cluster().is_forbidden = true;
    let file = node.bed.at("ready");
    assert!(probe(&file).is_err(), "nobody keeps the file yet");
    let name = format!("--node={NODE}");
    let option = format!("--ready-file={}", file.display());
    let config = node.bed.at("kubeconfig");
    let _process = node
        .bed
        .process_with(&["dra", &name, &option], &[("KUBECONFIG", &config)]);
    until("the driver is registered", || {
        node.kubelet.registered(DRIVER).len() == 1
    });
    // At its start, it asks for the node first.
    wait_missing(&file, "the devices are not published: the node gpu1 is not known");
    assert!(!probe(&file).unwrap_err().contains("registered"));
    node.api.cluster().is_forbidden = false;
    wait_missing(&file, "the ResourceSlices of this node cannot be published");
    node.api.cluster().slices.refuses = 0;
    until("it is ready", || probe(&file).is_ok());
    assert_eq!(node.api.cluster().slices.devices(), ["gpu-0"]);
    // An API server that is away later is seen by the end of the watch.
    node.api.cluster().slices.refuses = 503;
    node.api.cut();
    wait_missing(&file, "the ResourceSlices of this node cannot be published");
    node.api.cluster().slices.refuses = 0;
    until("it is ready again", || probe(&file).is_ok());
}

#[test]
fn a_device_plugin_is_ready_when_the_kubelet_reads_its_devices() {
    let mut bed = Bed::asleep(vec![crate::offers::whole("GPU-0")]);
    let file = bed.at("ready");
    let _process = bed.process_with(&["--ready-file", file.to_str().unwrap()], &[]);
    wait_missing(&file, "the broker has not answered yet");
    bed.broker.listen();
    wait_missing(&file, "nvidia.com/gpu: the kubelet has not registered it");
    bed.kubelet.start();
    until("it is ready", || probe(&file).is_ok());
    bed.kubelet.stop();
    wait_missing(&file, "nvidia.com/gpu: the kubelet has not registered it");
}
