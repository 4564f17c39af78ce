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
    CapacityRequestPolicy, Device, DeviceCapacity, DeviceTaint, ResourcePool, ResourceSlice,
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
        Ok(got) if dropped(&sent, &got) => Ok(Form::Plain),
        Err(Error::Api(status)) if matches!(status.code, 400 | 403 | 405 | 422) => Ok(Form::Full),
        answer => answer.map(|_| Form::Full),
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
            ..Device::default()
        }],
        ..DesiredSlice::default()
    }
}

/// Whether the API server has dropped a field of [`Form::Full`].
pub(super) fn dropped(sent: &ResourceSlice, got: &ResourceSlice) -> bool {
    let devices = |slice: &ResourceSlice| slice.spec.devices.clone().unwrap_or_default();
    let got = devices(got);
    devices(sent).iter().any(|sent| {
        let got = got.iter().find(|got| got.name == sent.name);
        got.is_some_and(|got| gated(sent).iter().zip(gated(got)).any(|(sent, got)| *sent && !got))
    })
}

/// Whether a device has each field with a gate.
fn gated(device: &Device) -> [bool; 3] {
    let mut capacities = device.capacity.iter().flat_map(BTreeMap::values);
    [
        device.allow_multiple_allocations == Some(true),
        capacities.any(|capacity| capacity.request_policy.is_some()),
        device.taints.iter().flatten().next().is_some(),
    ]
}
