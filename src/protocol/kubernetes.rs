//! What Kubernetes asks for: which devices its kubelet may allocate, and which it has allocated to a pod.

use crate::AllocatedDevice;
use serde::{Deserialize, Serialize};
use tranche_core::ledger::{KubernetesObject, PodName};

/// A command without fields.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct OffersRequest {}

/// The policy that the cluster has for this node. It counts where the node's owner has written none.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyRequest {
    /// Its text: one configuration of a ConfigMap, as NVIDIA's device plugin reads it; `None` if the cluster has none.
    pub text: Option<String>,
}

/// What became of the policy of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyAnswer {
    /// Whether it differs from the one before. The specifications are brought up to date then, a moment later.
    pub changed: bool,
    /// What in it has no effect, one line each.
    pub warnings: Vec<String>,
}

/// Devices that the kubelet has allocated to a pod. They are reserved for its containers until they are given up, also
/// over a reboot; what the pod has already is not asked for twice.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct ReserveRequest {
    /// The pod.
    pub pod: PodName,
    /// Their ids, as [`crate::Offer::ids`] has them.
    pub devices: Vec<String>,
}

/// Devices that a pod has no more. What one of its containers still uses ends with that container.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct GiveUpRequest {
    /// The pod.
    pub pod: PodName,
    /// Their ids.
    pub devices: Vec<String>,
}

/// A command without fields.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct DraDevicesRequest {}

/// A resource claim whose devices are made ready for containers: all of them are reserved for the claim, or nothing.
/// What the claim has already is made ready again.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct PrepareClaimRequest {
    /// The claim.
    pub claim: KubernetesObject,
    /// Its devices, as the scheduler allocated them.
    pub devices: Vec<AllocatedDevice>,
    /// When the kubelet asked for it, in milliseconds since boot: a call that is late does nothing for a claim that
    /// was given up meanwhile.
    pub asked_at: u64,
    /// Whether the driver asks again while another holder has a device ([`crate::PreparedClaim::held`]). One that does
    /// not say it gets that as a refusal.
    #[serde(default)]
    pub waits: bool,
}

/// A resource claim that no pod of this node uses any more. An unknown one is no error.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct UnprepareClaimRequest {
    /// Its UID.
    pub uid: String,
}
