//! What the driver for dynamic resource allocation (DRA) of Kubernetes offers and prepares, as the broker answers it.
//!
//! Each device has one name on the node, a DNS label, which the driver publishes and the scheduler's allocation
//! repeats.

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use tranche_core::ledger::KubernetesObject;
use tranche_core::types::{Interval, MemorySize, Percent, Strategy, in_mib, in_mib_if_known, sum_if_known};

/// The answer to [`super::DraDevicesRequest`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraDevices {
    /// All devices that the policy gives to the driver, in the order in which they are to be filled.
    pub devices: Vec<DraDevice>,
    /// The version of NVIDIA's driver: `570.124.06`.
    #[serde(default)]
    pub driver: Option<String>,
    /// The newest version of CUDA that it supports: `12.8`.
    #[serde(default)]
    pub cuda: Option<String>,
    /// The resource claims for which something is reserved on this node.
    #[serde(default)]
    pub claims: Vec<KubernetesObject>,
    /// The GPUs on which instances of MIG are made for claims. No device of these is in `devices`.
    #[serde(default)]
    pub divided: Vec<DraDivided>,
}

/// A GPU on which an instance of MIG is made when a claim has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraDivided {
    /// The GPU.
    pub gpu: DraGpu,
    /// What its instances use up together, by names that are DNS labels: one for each unit of memory, for engines, and
    /// for profiles of which the driver allows few. Instances can exist at the same time if they consume no more than
    /// this, and only then.
    pub counters: BTreeMap<String, u32>,
    /// All instances that it can have, in the order in which they are to be given away.
    pub instances: Vec<DraInstance>,
    /// How well limits of memory and of compute hold between instances: `hard`.
    pub guarantee: String,
    /// Why no container can use the GPU now; `None` if it works.
    #[serde(default)]
    pub unhealthy: Option<String>,
    /// Why the GPU is out of service: no new instance is made on it; `None` if it is in service.
    #[serde(default)]
    pub out_of_service: Option<String>,
}

/// An instance of MIG that can exist at a place of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraInstance {
    /// Its name: `gpu-0-mig-1g-10gb-19-at-4` (the driver's number of the profile, and the first unit of memory).
    pub name: String,
    /// Its profile: `1g.10gb`.
    pub profile: String,
    /// Its memory.
    #[serde(rename = "memory_mib", with = "in_mib")]
    pub memory: MemorySize,
    /// Its streaming multiprocessors.
    pub multiprocessors: u32,
    /// Its engines; `None` from an older broker.
    #[serde(default)]
    pub engines: Option<DraEngines>,
    /// What it uses of the GPU's counters.
    pub consumes: BTreeMap<String, u32>,
    /// Who has something at its place and is not a resource claim of this cluster, for people.
    #[serde(default)]
    pub held_by: Option<String>,
}

/// What a device of the driver is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DraKind {
    /// A GPU, or a share of a device.
    Gpu,
    /// A MIG device.
    Mig,
}

impl DraKind {
    /// The name of the MIG device `place` on the GPU of this name: `gpu-0-mig-1g-10gb-7-0`.
    pub fn mig_name(gpu: &str, place: &str) -> String {
        format!("{gpu}-mig-{place}")
    }

    /// What the device of this name is: `gpu-0-mig-1g-10gb-7-0` is a MIG device, and `gpu-0-share-mig` is not.
    pub fn of(device: &str) -> Self {
        match device.split('-').nth(2) {
            Some("mig") => Self::Mig,
            _ => Self::Gpu,
        }
    }
}

/// A GPU, or a MIG device on one, that is offered as a whole or in parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraDevice {
    /// Its name: `gpu-0` (by its minor number), `gpu-0-mig-1g-10gb-7-0` (profile, GPU instance, compute instance).
    pub name: String,
    /// The GPU that it is, or is on.
    pub gpu: DraGpu,
    /// What it is if it is a MIG device; `None` for a GPU.
    #[serde(default)]
    pub mig: Option<DraMig>,
    /// Its memory; `None` if the driver does not say it.
    #[serde(default, rename = "memory_mib", with = "in_mib_if_known")]
    pub memory: Option<MemorySize>,
    /// Its streaming multiprocessors, if they are known.
    #[serde(default)]
    pub multiprocessors: Option<u32>,
    /// How it is shared.
    pub strategy: Strategy,
    /// How well a limit of memory holds between those who share it: `hard`, `soft`, `advisory`, `none`.
    pub memory_guarantee: String,
    /// The same for compute.
    pub compute_guarantee: String,
    /// Its parts; `None` if it is given as a whole, to one claim at a time.
    #[serde(default)]
    pub parts: Option<DraParts>,
    /// Why no container can use it now; `None` if it works.
    #[serde(default)]
    pub unhealthy: Option<String>,
    /// Why nothing new is given of it, while what a claim has stays as it is; `None` if it is in service.
    #[serde(default)]
    pub out_of_service: Option<String>,
    /// What is held of it by holders other than the resource claims of this cluster.
    #[serde(default)]
    pub held: Vec<DraHeld>,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraGpu {
    /// The name of the GPU: `gpu-0`. Devices with the same one are on one GPU.
    pub name: String,
    /// Its UUID.
    pub uuid: String,
    /// NVML's index, where it is known.
    #[serde(default)]
    pub index: Option<u32>,
    /// The N of `/dev/nvidiaN`.
    pub minor: u32,
    /// Its product: `NVIDIA H200`.
    pub product: String,
    /// Its brand as NVIDIA's driver for DRA writes it: `Nvidia`.
    #[serde(default)]
    pub brand: Option<String>,
    /// Its architecture as NVIDIA's driver for DRA writes it: `Hopper`.
    #[serde(default)]
    pub architecture: Option<String>,
    /// Its compute capability: `9.0`.
    #[serde(default)]
    pub compute_capability: Option<String>,
    /// Its PCI address: `0000:41:00.0`.
    pub pci: String,
    /// The NUMA node that it is next to.
    #[serde(default)]
    pub numa: Option<u32>,
    /// The root of the PCI hierarchy that it is below: `pci0000:40`.
    #[serde(default)]
    pub pcie_root: Option<String>,
    /// How it shares addresses with the processor: `None`, `HMM`, `ATS`.
    #[serde(default)]
    pub addressing: Option<String>,
}

/// A MIG device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraMig {
    /// Its UUID; `None` if it is made for a claim.
    #[serde(default)]
    pub uuid: Option<String>,
    /// Its profile, if it is known: `1g.10gb`.
    #[serde(default)]
    pub profile: Option<String>,
    /// Its engines, if they are known.
    #[serde(default)]
    pub engines: Option<DraEngines>,
}

/// How many engines a MIG device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraEngines {
    /// Copy engines.
    pub copy: u32,
    /// Decoders.
    pub decoders: u32,
    /// Encoders.
    pub encoders: u32,
    /// JPEG decoders.
    pub jpeg: u32,
    /// Optical flow accelerators.
    pub ofa: u32,
}

/// The parts of a device that is shared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraParts {
    /// Whether all are equal: then a claim may also ask for an amount.
    pub equal: bool,
    /// The shares of the policy.
    pub shares: Vec<DraShare>,
    /// The most memory that may be promised to all together; `None` where shares have no limit of memory.
    #[serde(default, rename = "most_memory_mib", with = "in_mib_if_known")]
    pub most_memory: Option<MemorySize>,
    /// The most compute of all together; `None` where shares have no limit of it.
    #[serde(default, with = "sum_if_known")]
    pub most_compute: Option<Percent>,
    /// The most claims at one time.
    pub most_claims: u32,
}

/// A share of the policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraShare {
    /// The name of the device that it is when it is published alone: `gpu-0-share-big`.
    pub device: String,
    /// Its name in the policy: `big`, or a number.
    pub name: String,
    /// Its memory; `None` without a limit.
    #[serde(default, rename = "memory_mib", with = "in_mib_if_known")]
    pub memory: Option<MemorySize>,
    /// Its compute; `None` without a limit.
    #[serde(default)]
    pub compute: Option<Percent>,
}

/// A part of a device that another holder has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DraHeld {
    /// The name of the share in the policy; `None` for all of the device.
    #[serde(default)]
    pub share: Option<String>,
    /// The memory that was promised; `None` without a limit.
    #[serde(default, rename = "memory_mib", with = "in_mib_if_known")]
    pub memory: Option<MemorySize>,
    /// The compute that was promised; `None` without a limit.
    #[serde(default, with = "sum_if_known")]
    pub compute: Option<Percent>,
    /// Who holds it, for people: `container 262bf9f7e5a8`.
    pub by: String,
}

/// One device of a resource claim's allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatedDevice {
    /// The name of the device: of [`DraDevice`] or [`DraShare`].
    pub device: String,
    /// The request that it is for, without the name of an alternative: each of its containers gets all devices of it.
    /// Empty from an older driver.
    #[serde(default)]
    pub request: String,
    /// The scheduler's id of the share of a device that several claims may have.
    #[serde(default)]
    pub share_id: Option<String>,
    /// The memory that the scheduler has counted for it, in bytes on the wire.
    #[serde(default)]
    pub memory: Option<MemorySize>,
    /// The compute that the scheduler has counted for it.
    #[serde(default)]
    pub compute: Option<Percent>,
    /// The number of shares that the scheduler has counted for it.
    #[serde(default)]
    pub shares: Option<u32>,
    /// What the claim's configuration says about sharing; `None` if it says nothing.
    #[serde(default)]
    pub sharing: Option<ClaimSharing>,
    /// Whether the claim only watches the device: it gets the nodes, waits for nobody and reserves nothing.
    #[serde(default)]
    pub admin: bool,
}

/// How the containers of one claim share its device: NVIDIA's GpuConfig and MigDeviceConfig.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimSharing {
    /// They run in turn.
    TimeSlicing {
        /// The length of a turn; `None`: as it is.
        interval: Option<Interval>,
    },
    /// They run at the same time, under an MPS daemon.
    Mps {
        /// The ceiling of each client.
        active_thread_percentage: Option<Percent>,
        /// The limit of pinned device memory of each client.
        #[serde(default, rename = "pinned_memory_mib", with = "in_mib_if_known")]
        pinned_memory: Option<MemorySize>,
    },
}

/// Milliseconds since boot: the clock of [`super::PrepareClaimRequest::asked_at`]. It continues while the machine
/// sleeps, and cannot be set.
pub fn since_boot() -> u64 {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |time| {
        let millis = time
            .tv_sec()
            .saturating_mul(1000)
            .saturating_add(time.tv_nsec() / 1_000_000);
        u64::try_from(millis).unwrap_or(0)
    })
}

/// The answer to [`super::PrepareClaimRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreparedClaim {
    /// The CDI name of each device, in the order of the request; empty if one is held.
    pub cdi: Vec<String>,
    /// Who holds one of the devices, in a line: nothing is reserved, and a later request may succeed. `None` if all
    /// are ready.
    #[serde(default)]
    pub held: Option<String>,
    /// What the claim has of each device, in the order of the request; `None` for one that it only watches. Empty if
    /// one is held, and from an older broker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given: Vec<Option<GivenDevice>>,
}

/// What a claim has of one device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenDevice {
    /// The UUID of the GPU or the MIG device; `None` if the driver does not say it.
    #[serde(default)]
    pub uuid: Option<String>,
    /// How the device is shared.
    pub strategy: Strategy,
    /// The name of its share; `None`: it has all of the device.
    #[serde(default)]
    pub share: Option<String>,
    /// The limit of device memory of each process; `None` without a limit.
    #[serde(default, rename = "memory_mib", with = "in_mib_if_known")]
    pub memory: Option<MemorySize>,
    /// The limit of compute of each process, as MPS's active thread percentage; `None` without a limit.
    #[serde(default)]
    pub compute: Option<Percent>,
}
