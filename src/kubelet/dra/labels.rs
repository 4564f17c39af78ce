//! Labels of the node, for selectors of people who do not use claims. They are asked of Node Feature Discovery by an
//! object of its own kind (`nfd.k8s-sigs.io/v1alpha1`, NodeFeature), so the driver needs no right over nodes.
//!
//! Names and values are those of NVIDIA's GPU feature discovery where they mean the same. What differs between the GPUs
//! of the node has no label.

use super::label_value::label_value;
use crate::api::{why, within};
use crate::said::{Said, Topic};
use crate::settings::PodRef;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;
use tranche_core::types::Strategy;
use tranche_protocol::DraDevices;

/// After how long the object is written again, if nothing changes: somebody may have deleted it.
const AGAIN: Duration = Duration::from_secs(300);

/// After a fault, it is tried again when so many answers would have come.
const SOON: u32 = 12;

/// The labels of a node with these devices.
fn labels(node: &DraDevices) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut add = |name: &str, value: Option<String>| {
        let value = value.map(|value| label_value(&value)).filter(|value| !value.is_empty());
        all.extend(value.map(|value| (format!("nvidia.com/{name}"), value)));
    };
    let of_devices = node.devices.iter().map(|device| &device.gpu);
    add(
        "gpu.product",
        same(
            of_devices
                .chain(node.divided.iter().map(|gpu| &gpu.gpu))
                .map(|gpu| gpu.product.clone()),
        ),
    );
    let whole = || node.devices.iter().filter(|device| device.mig.is_none());
    let memory = same(whole().map(|device| device.memory));
    add("gpu.memory", memory.flatten().map(|size| size.mib().to_string()));
    let strategy = same(whole().map(|device| device.strategy));
    let strategy = strategy.filter(|_| node.divided.is_empty());
    add(
        "gpu.sharing-strategy",
        strategy.and_then(|strategy| match strategy {
            Strategy::Dedicated => Some("none".to_owned()),
            Strategy::Mps | Strategy::TimeSlicing => Some(strategy.as_str().to_owned()),
            // There is no such value there.
            _ => None,
        }),
    );
    if let Some(driver) = &node.driver {
        add("cuda.driver-version.full", Some(driver.clone()));
        for (name, part) in ["major", "minor", "revision"].into_iter().zip(driver.split('.')) {
            add(&format!("cuda.driver-version.{name}"), Some(part.to_owned()));
        }
    }
    all
}

/// The value that all have; `None` if they differ.
fn same<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    values.all(|value| value == first).then_some(first)
}

/// Keeps the object of the node `node` as it should be, in the namespace of this pod. `owner` is the pod, with which
/// the cluster removes it. It returns when nobody can change `devices` any more.
pub(super) async fn keep(
    client: Client,
    driver: String,
    node: String,
    owner: PodRef,
    patience: Duration,
    mut said: Said,
    mut devices: watch::Receiver<Option<DraDevices>>,
) {
    let kind = GroupVersionKind::gvk("nfd.k8s-sigs.io", "v1alpha1", "NodeFeature");
    let api = Api::<DynamicObject>::default_namespaced_with(client, &ApiResource::from_gvk(&kind));
    let name = format!("tranche-{node}");
    let mut written = None;
    loop {
        let wanted = devices.borrow_and_update().as_ref().map(labels);
        if let Some(labels) = wanted.filter(|wanted| written.as_ref() != Some(wanted)) {
            let object = json!({
                "apiVersion": "nfd.k8s-sigs.io/v1alpha1", "kind": "NodeFeature",
                "metadata": {"name": name, "labels": {"nfd.node.kubernetes.io/node-name": node},
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": owner.name, "uid": owner.uid}]},
                "spec": {"features": {"flags": {}, "attributes": {}, "instances": {}}, "labels": labels},
            });
            let params = PatchParams::apply(&driver).force();
            written = None;
            match within(patience, api.patch(&name, &params, &Patch::Apply(&object))).await {
                Ok(_) => {
                    said.is_well(&Topic::NodeLabels);
                    written = Some(labels);
                }
                Err(e) => said.warn(
                    Topic::NodeLabels,
                    format!("the labels of the node are not set: {}", why(&e)),
                ),
            }
        }
        let pause = if written.is_some() { AGAIN } else { SOON * patience };
        tokio::select! {
            changed = devices.changed() => if changed.is_err() { return },
            () = sleep(pause) => written = None,
        }
    }
}
