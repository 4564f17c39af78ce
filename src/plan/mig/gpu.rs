//! A GPU as it is divided now.

use super::{ComputeProfileId, InstanceProfile, Placement, ProfileId};
use crate::inventory::{MigState, VirtualizationMode};
use serde::{Deserialize, Serialize};
use tranche_core::types::{ComputeInstanceId, GpuIndex, GpuInstanceId, GpuUuid, MigUuid, PciAddress};

/// A GPU that has MIG, as NVML reports it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigGpu {
    /// UUID.
    pub uuid: GpuUuid,
    /// NVML's index.
    pub index: GpuIndex,
    /// PCI address.
    pub pci: PciAddress,
    /// PCI device and vendor as NVML writes them: the device in the upper 16 bits.
    pub pci_device: u32,
    /// The same of the subsystem; 0 where NVML does not report it.
    pub pci_subsystem: u32,
    /// Product name.
    pub product: String,
    /// The mode now and after the next reset.
    pub mode: MigState,
    /// Whether the mode can change without a reset (`NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED`, field 184, drivers since
    /// 530); `None` where NVML does not answer that.
    pub resetless: Option<bool>,
    /// Whether it is a piece of a GPU, or passed to a virtual machine.
    pub virtualization: Option<VirtualizationMode>,
    /// What the driver offers; empty where it does not say it while MIG mode is off.
    pub profiles: Vec<InstanceProfile>,
    /// The GPU instances that exist, by their first unit.
    pub instances: Vec<GpuInstance>,
    /// The processes that NVML lists. More processes may have the GPU open.
    pub clients: Vec<MigClient>,
}

impl MigGpu {
    /// The profile with this number.
    pub fn profile(&self, id: ProfileId) -> Option<&InstanceProfile> {
        self.profiles.iter().find(|profile| profile.id == id)
    }

    /// Whether it is a piece of a GPU, or divided among virtual machines: it has no instances of its own.
    pub fn is_piece(&self) -> bool {
        matches!(
            self.virtualization,
            Some(VirtualizationMode::Vgpu | VirtualizationMode::HostVgpu | VirtualizationMode::HostVsga)
        )
    }
}

/// A GPU instance that exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuInstance {
    /// The driver's number. It does not tell where the instance lies.
    pub id: GpuInstanceId,
    /// Its profile.
    pub profile: ProfileId,
    /// Where it lies.
    pub placement: Placement,
    /// Its compute instances, by their first slice.
    pub compute: Vec<ComputeInstance>,
}

/// A compute instance that exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComputeInstance {
    /// The driver's number, unique within its GPU instance.
    pub id: ComputeInstanceId,
    /// Its profile.
    pub profile: ComputeProfileId,
    /// Where it lies within its GPU instance; `None` where the driver does not say it.
    pub placement: Option<Placement>,
    /// The UUID of the MIG device. It changes each time the instance is created.
    pub uuid: Option<MigUuid>,
}

/// A process that uses a GPU in MIG mode.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigClient {
    /// Its number in the pid namespace of the caller.
    pub pid: u32,
    /// The GPU instance that it uses; `None` where NVML does not say it, so that it may use any.
    pub gpu_instance: Option<GpuInstanceId>,
    /// The compute instance within it.
    pub compute_instance: Option<ComputeInstanceId>,
}
