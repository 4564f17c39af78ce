//! Which devices Kubernetes gets, and under which names.

use super::{DeviceSet, Place};
use tranche_core::types::ResourceName;
use tranche_protocol::PodPlacement;

tranche_core::types::words! {
    /// By which interface the kubelet gets a device. A device has one, so that it is never given twice.
    pub enum Door: "door" {
        /// The device plugin of `tranche-kubelet`.
        DevicePlugin = "device-plugin",
        /// The driver for dynamic resource allocation (DRA) of `tranche-kubelet`.
        Dra = "dra",
        /// Kubernetes does not get it.
        None = "none",
    }
}
tranche_core::types::serde_as_text!(Door);

/// The section `kubernetes`. Without it, all devices are offered to a plugin that asks for them: one that is not
/// installed asks for nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesSection {
    /// The door of devices that no entry names.
    pub door: Door,
    /// What differs from that, first match first.
    pub entries: Vec<KubernetesEntry>,
    /// MIG devices have the resource of whole GPUs: `flags.migStrategy` is `single`.
    pub mig_as_gpus: bool,
    /// Which device a container of a pod gets; `None` if nothing is said, as in a file with keys of tranche.
    pub placement: Option<PodPlacement>,
}

impl Default for KubernetesSection {
    fn default() -> Self {
        Self {
            door: Door::DevicePlugin,
            entries: Vec::new(),
            mig_as_gpus: false,
            placement: None,
        }
    }
}

/// What Kubernetes gets of some devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesEntry {
    /// The devices.
    pub devices: DeviceSet,
    /// Their door; `None` for that of the section.
    pub door: Option<Door>,
    /// The name of their resource; `None` for NVIDIA's.
    pub resource: Option<ResourceName>,
    /// Where the entry is in the file.
    pub place: Place,
}
