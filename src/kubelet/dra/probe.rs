//! Which fields of a slice the API server keeps.
//!
//! A field whose feature gate is off is dropped without an error (`dropDisabledFields` of
//! `pkg/registry/resource/resourceslice`): a device for many claims would then be one for a single claim, and a device
//! that is held would be free. So the server is asked by a dry run before such a slice is published, and what comes
//! back from each publication is compared too.

use super::attributes::TRANCHE;
use super::quantity::number;
use super::slices::{DesiredSlice, Form, NodeRef};
use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, Counter, Device, DeviceCapacity, DeviceCounterConsumption, DeviceTaint, ResourcePool,
    ResourceSlice,
};
use kube::api::PostParams;
use kube::{Api, Error};
use std::collections::BTreeMap;

/// Asks which form the API server can store; nothing is stored.
///
/// # Errors
/// Returns an error if the API server does not answer. A server that refuses the question is taken for one that keeps
/// all fields: the comparison of what is published decides.
pub(super) async fn probe(api: &Api<ResourceSlice>, driver: &str, node: &NodeRef) -> Result<Form, Error> {
    let sent = question().object(
        driver,
        node,
        ResourcePool {
            generation: 1,
            name: node.name.clone(),
            resource_slice_count: 1,
        },
    );
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    match api.create(&params, &sent).await {
        Ok(got) => Ok(kept(&sent, &got)),
        Err(Error::Api(status)) if matches!(status.code, 400 | 403 | 405 | 422) => Ok(Form::Full),
        Err(error) => Err(error),
    }
}

/// A slice with all fields of [`Form::Full`].
fn question() -> DesiredSlice {
    let capacity = DeviceCapacity {
        value: number(1),
        request_policy: Some(CapacityRequestPolicy {
            default: Some(number(1)),
            ..CapacityRequestPolicy::default()
        }),
    };
    DesiredSlice {
        generate_name: "probe-".to_owned(),
        devices: vec![Device {
            name: "probe".to_owned(),
            allow_multiple_allocations: Some(true),
            capacity: Some(BTreeMap::from([("shares".to_owned(), capacity)])),
            taints: Some(vec![DeviceTaint {
                effect: "NoSchedule".to_owned(),
                key: format!("{TRANCHE}/probe"),
                ..DeviceTaint::default()
            }]),
            // The set would be in another slice: one that has devices has none (from 1.35).
            consumes_counters: Some(vec![DeviceCounterConsumption {
                counter_set: "probe".to_owned(),
                counters: BTreeMap::from([("probe".to_owned(), Counter { value: number(1) })]),
            }]),
            ..Device::default()
        }],
        ..DesiredSlice::default()
    }
}

/// The form that the API server has kept of what was sent.
pub(super) fn kept(sent: &ResourceSlice, got: &ResourceSlice) -> Form {
    let devices = |slice: &ResourceSlice| slice.spec.devices.clone().unwrap_or_default();
    let got_devices = devices(got);
    let is_dropped = |has: fn(&Device) -> bool| {
        devices(sent).iter().filter(|sent| has(sent)).any(|sent| {
            let got = got_devices.iter().find(|got| got.name == sent.name);
            got.is_some_and(|got| !has(got))
        })
    };
    let sets = |slice: &ResourceSlice| slice.spec.shared_counters.as_ref().map_or(0, Vec::len);
    if GATED.iter().any(|has| is_dropped(*has)) {
        Form::Plain
    } else if is_dropped(has_counters) || sets(sent) > sets(got) {
        Form::Uncounted
    } else {
        Form::Full
    }
}

/// Whether a device has each field that [`Form::Plain`] is without.
const GATED: [fn(&Device) -> bool; 3] = [
    |device| device.allow_multiple_allocations == Some(true),
    |device| {
        let mut capacities = device.capacity.iter().flat_map(BTreeMap::values);
        capacities.any(|capacity| capacity.request_policy.is_some())
    },
    |device| device.taints.iter().flatten().next().is_some(),
];

fn has_counters(device: &Device) -> bool {
    device.consumes_counters.iter().flatten().next().is_some()
}
