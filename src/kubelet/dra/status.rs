//! What a claim was given, in `status.devices` of the claim: UUID, share and limits, for people and programs that look
//! at it. Nothing waits for that, and no claim is refused because of it.
//!
//! Nothing is removed again: the API server drops the entries of a claim that loses its devices
//! (`pkg/registry/resource/resourceclaim/strategy.go`, dropDeallocatedStatusDevices).

use super::handler::PreparedDevice;
use crate::api::{why, within};
use crate::said::{Said, Topic};
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::Status;
use kube::{Api, Client, Error};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tranche_core::ledger::KubernetesObject;
use tranche_protocol::GivenDevice;

/// How many claims wait to be written.
pub(super) const WAITING: usize = 256;

/// How often one is tried while the API server does not answer, and the pause between.
const TRIES: u32 = 3;
const AGAIN: Duration = Duration::from_secs(2);

/// What a claim was given.
#[derive(Debug)]
pub(super) struct Given {
    pub(super) claim: KubernetesObject,
    /// One for each device that it owns.
    pub(super) entries: Vec<Value>,
}

/// The entry of a device (`resource.k8s.io/v1`, AllocatedDeviceStatus).
pub(super) fn entry(driver: &str, device: &PreparedDevice, given: &GivenDevice) -> Value {
    let mut entry = json!({
        "driver": driver, "pool": device.pool, "device": device.device,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Prepared", "message": "",
            "lastTransitionTime": Time(Timestamp::now())}],
        "data": {"uuid": given.uuid, "strategy": given.strategy, "share": given.share,
            "memoryMiB": given.memory.map(|size| size.mib()), "activeThreadPercentage": given.compute},
    });
    if let Some(id) = &device.share_id {
        entry["shareID"] = json!(id);
    }
    if let Some(data) = entry["data"].as_object_mut() {
        data.retain(|_, value| !value.is_null());
    }
    entry
}

/// Writes what claims were given, until nobody sends any. What is wrong is said once, and the next claim is tried.
pub(super) async fn write(
    client: Client,
    driver: String,
    patience: Duration,
    mut said: Said,
    mut given: mpsc::Receiver<Given>,
) {
    let mut is_well = true;
    while let Some(one) = given.recv().await {
        let written = apply(&client, &driver, patience, &one).await;
        let was_well = std::mem::replace(&mut is_well, written.is_ok());
        match written {
            Ok(()) => said.is_well(&Topic::ClaimStatus),
            // The reason may name the claim, and would be another line for each.
            Err(why) if was_well => {
                let what = format!("the status of claims does not say what they were given: {why}");
                said.warn(Topic::ClaimStatus, what);
            }
            Err(_) => {}
        }
    }
}

/// Applies the entries of one claim as those of this driver: entries of others stay as they are. With the UID, a later
/// claim of the same name is refused.
async fn apply(client: &Client, driver: &str, patience: Duration, given: &Given) -> Result<(), String> {
    let KubernetesObject { namespace, name, uid } = &given.claim;
    let api = Api::<ResourceClaim>::namespaced(client.clone(), namespace);
    let patch = Patch::Apply(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"namespace": namespace, "name": name, "uid": uid}, "status": {"devices": given.entries}}));
    let params = PatchParams::apply(driver).force();
    let mut why_lost = String::new();
    for _ in 0..TRIES {
        match within(patience, api.patch_status(name, &params, &patch)).await {
            Ok(claim) => {
                let devices = claim.status.and_then(|status| status.devices);
                let kept = devices.is_some_and(|devices| devices.iter().any(|one| one.driver == driver));
                let dropped = "the API server drops it (the gate DRAResourceClaimDeviceStatus is off)";
                return kept.then_some(()).ok_or_else(|| dropped.to_owned());
            }
            // The claim is deleted, or is another one.
            Err(Error::Api(status)) if status.code == 404 || is_another(&status) => return Ok(()),
            Err(e @ Error::Api(_)) => return Err(why(&e)),
            Err(e) => why_lost = why(&e),
        }
        sleep(AGAIN).await;
    }
    Err(why_lost)
}

/// Whether a refusal says that a later claim has the name: the UID is a field that cannot change. The lack of the right
/// is `Invalid` as well, with other fields.
fn is_another(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 409 || causes.into_iter().any(|cause| cause.field == "metadata.uid")
}
