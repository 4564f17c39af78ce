//! GPUs and MIG devices.

use super::{DeviceNode, HostDevice};
use serde::{Deserialize, Serialize};
use tranche_core::types::{
    ComputeCapability, ComputeInstanceId, GpuIndex, GpuInstanceId, GpuUuid, MemorySize, MigIndex, MigProfile, MigUuid,
    Minor, PciAddress,
};

/// One GPU. What only NVML tells is `None` where NVML did not answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// NVML's index where [`Gpu::index_is_known`]; else only the place in this list, which must not become a name.
    pub index: GpuIndex,
    /// Whether `index` is what NVML would say. It is not where NVML did not answer and the order of the GPUs is not
    /// certain.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub index_is_known: bool,
    /// The N of `/dev/nvidiaN`. Not the index.
    pub minor: Minor,
    /// UUID.
    pub uuid: GpuUuid,
    /// PCI address.
    pub pci: PciAddress,
    /// Product name: `NVIDIA H200`.
    pub name: String,
    /// Its brand, as NVIDIA's programs for Kubernetes write it: `Nvidia`, `GeForce`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brand: Option<String>,
    /// Architecture.
    pub architecture: Option<Architecture>,
    /// Compute capability.
    pub compute_capability: Option<ComputeCapability>,
    /// Streaming multiprocessors of the whole GPU; `None` if the driver or the hardware does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sms: Option<u32>,
    /// Memory in all, as the driver reports it, or that of the machine if the GPU has none of its own.
    pub memory: Option<MemorySize>,
    /// Whether the GPU has no memory of its own and uses that of the machine, as the processors do (GB10, Thor, Orin).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uses_system_memory: bool,
    /// MIG mode; `None` for a GPU that has no MIG, or where NVML did not answer.
    pub mig: Option<MigState>,
    /// Compute mode.
    pub compute_mode: Option<ComputeMode>,
    /// Whether the driver stays loaded on this GPU when nobody uses it.
    pub persistence: Option<bool>,
    /// How it shares addresses with the processor.
    pub addressing: Option<AddressingMode>,
    /// The NUMA node of its PCI device.
    pub numa_node: Option<u32>,
    /// The root of the PCI hierarchy that it is below: `pci0000:40`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_root: Option<String>,
    /// Whether this is a piece of a GPU that a hypervisor hands out.
    pub virtualization: Option<VirtualizationMode>,
    /// `/dev/nvidiaN`; `None` if neither the node nor the driver's major number is known.
    pub node: Option<DeviceNode>,
    /// DRI nodes of its PCI address, by path.
    pub dri: Vec<DriNode>,
    /// MIG devices, by index.
    pub mig_devices: Vec<MigDevice>,
    /// MIG instances without a name, because NVML did not answer: only NVML knows which of them is `0:0`, and their
    /// UUIDs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unnamed_instances: Vec<MigInstance>,
}

impl Gpu {
    /// Whether its work runs on MIG devices only (the current mode, not the pending one). A GPU that has instances is
    /// in MIG mode, whether NVML or `/proc` shows them.
    pub fn is_in_mig_mode(&self) -> bool {
        self.mig.is_some_and(|m| m.current == MigMode::Enabled) || !self.unnamed_instances.is_empty()
    }

    /// What people may call it: `gpu 0`, or, where its index is not known, `gpu GPU-…`.
    pub fn label(&self) -> String {
        HostDevice { gpu: self, mig: None }.to_string()
    }
}

fn yes() -> bool {
    true
}

fn is_yes(value: &bool) -> bool {
    *value
}

/// An instance of a GPU in MIG mode, by the driver's own numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigInstance {
    /// GPU instance.
    pub gpu_instance: GpuInstanceId,
    /// Compute instance within it; `None` for a GPU instance that has none yet.
    pub compute_instance: Option<ComputeInstanceId>,
}

impl std::fmt::Display for MigInstance {
    /// `7.0`
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.compute_instance {
            Some(compute) => write!(f, "{}.{compute}", self.gpu_instance),
            None => write!(f, "{}", self.gpu_instance),
        }
    }
}

/// A piece of a GPU with its own memory and compute: a compute instance in a GPU instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigDevice {
    /// The M of `G:M`.
    pub index: MigIndex,
    /// UUID; it changes each time the instance is created. `None` if NVML did not answer.
    pub uuid: Option<MigUuid>,
    /// GPU instance.
    pub gpu_instance: GpuInstanceId,
    /// Compute instance within it.
    pub compute_instance: ComputeInstanceId,
    /// Profile.
    pub profile: Option<MigProfile>,
    /// Memory of the GPU instance, as the driver reports it; compute instances of one GPU instance share it.
    pub memory: Option<MemorySize>,
    /// Slices of the GPU instance.
    pub gpu_slices: Option<u32>,
    /// Slices of the compute instance.
    pub compute_slices: Option<u32>,
    /// Streaming multiprocessors of the compute instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sms: Option<u32>,
    /// Engines of the GPU instance; compute instances of one GPU instance share them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engines: Option<Engines>,
    /// The capability node of the GPU instance.
    pub gpu_instance_cap: Option<DeviceNode>,
    /// The capability node of the compute instance.
    pub compute_instance_cap: Option<DeviceNode>,
}

impl MigDevice {
    /// `MIG 1g.10gb`, or `MIG` where the profile is not known.
    pub fn product(&self) -> String {
        match &self.profile {
            Some(profile) => format!("MIG {profile}"),
            None => "MIG".to_owned(),
        }
    }
}

/// A node under `/dev/dri`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriNode {
    /// What it is for.
    pub kind: DriKind,
    /// The node.
    pub node: DeviceNode,
    /// Its name in `/dev/dri/by-path`, where the host has that link: `pci-0000:41:00.0-card`.
    pub by_path: Option<String>,
}

/// What a DRI node is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriKind {
    /// `cardN`: mode setting.
    Card,
    /// `renderDN`: drawing without a screen.
    Render,
    /// `controlDN`: of old kernels.
    Control,
}

/// MIG mode now, and after the next reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MigState {
    /// The mode now.
    pub current: MigMode,
    /// The mode after the next reset of the GPU.
    pub pending: MigMode,
}

/// MIG on or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MigMode {
    /// Off.
    Disabled,
    /// On.
    Enabled,
}

/// Architectures, oldest first (`nvmlDeviceArchitecture_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Architecture {
    /// 2012
    Kepler,
    /// 2014
    Maxwell,
    /// 2016
    Pascal,
    /// 2017
    Volta,
    /// 2018
    Turing,
    /// 2020
    Ampere,
    /// 2022, graphics
    Ada,
    /// 2022, data centre
    Hopper,
    /// 2024
    Blackwell,
}

/// Who may use a GPU at the same time (`nvmlComputeMode_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComputeMode {
    /// Everybody.
    Default,
    /// One thread; current drivers treat it as one process.
    ExclusiveThread,
    /// Nobody.
    Prohibited,
    /// One process.
    ExclusiveProcess,
}

impl ComputeMode {
    /// Its name as nvidia-smi and the driver's documentation write it.
    pub fn as_str(self) -> &'static str {
        match self {
            ComputeMode::Default => "DEFAULT",
            ComputeMode::ExclusiveThread => "EXCLUSIVE_THREAD",
            ComputeMode::Prohibited => "PROHIBITED",
            ComputeMode::ExclusiveProcess => "EXCLUSIVE_PROCESS",
        }
    }
}

impl std::fmt::Display for ComputeMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// How a GPU shares addresses with the processor (`nvmlDeviceAddressingModeType_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddressingMode {
    /// Not at all.
    None,
    /// The kernel's heterogeneous memory management.
    Hmm,
    /// Address translation services: one coherent address space.
    Ats,
}

/// Whether a GPU is real (`nvmlGpuVirtualizationMode_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VirtualizationMode {
    /// A real GPU on a real machine.
    None,
    /// A real GPU given to this virtual machine.
    Passthrough,
    /// A vGPU: this is a guest, and modes cannot be changed here.
    Vgpu,
    /// A host that hands out vGPUs.
    HostVgpu,
    /// A host that hands out vSGAs.
    HostVsga,
}

/// How many of its engines an instance has for itself (`nvmlGpuInstanceProfileInfo_t`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engines {
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
