//! What the GPUs of a host do now.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tranche_plan::inventory::ComputeMode;

/// What a GPU does now. A field is `None` if the GPU or its driver does not report it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuUsage {
    /// NVML's index.
    pub index: u32,
    /// Its UUID.
    pub uuid: Option<String>,
    /// Its memory.
    pub memory: Option<MemoryUsage>,
    /// Whether it has no memory of its own and uses that of the machine.
    pub uses_system_memory: bool,
    /// Percent of the last sample period in which a kernel ran; unknown in MIG mode.
    pub busy: Option<u32>,
    /// Percent of that time in which memory was read or written.
    pub memory_busy: Option<u32>,
    /// Its compute mode.
    pub compute_mode: Option<ComputeMode>,
    /// Its MIG devices.
    pub mig: Vec<MigUsage>,
    /// The processes that use it, by number; `None` if they are unknown.
    pub processes: Option<Vec<ProcessUsage>>,
}

/// The memory of a device, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryUsage {
    /// All of it.
    pub total: u64,
    /// What is allocated.
    pub used: u64,
}

/// The memory of a GPU, and who has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuMemory {
    /// All of it, in bytes.
    pub total: u64,
    /// What is allocated, in bytes.
    pub used: u64,
    /// What each process that computes has of it, in bytes; `None` where the driver does not say it.
    pub processes: BTreeMap<u32, Option<u64>>,
}

/// What a MIG device does now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MigUsage {
    /// NVML's index within the GPU.
    pub index: u32,
    /// Its GPU instance.
    pub gpu_instance: Option<u32>,
    /// Its compute instance, within the GPU instance.
    pub compute_instance: Option<u32>,
    /// The memory of its GPU instance.
    pub memory: Option<MemoryUsage>,
}

/// A process that uses a GPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessUsage {
    /// Its number in the pid namespace of this program.
    pub pid: u32,
    /// In which ways.
    pub kinds: BTreeSet<ProcessKind>,
    /// The memory that it has allocated, in bytes. Of a client of MPS, older drivers report none and add it to that of
    /// the MPS server.
    pub memory: Option<u64>,
    /// Percent of the last sample period in which a kernel of it ran.
    pub busy: Option<u32>,
    /// The GPU instance that it runs on.
    pub gpu_instance: Option<u32>,
    /// The compute instance that it runs on.
    pub compute_instance: Option<u32>,
}

/// How a process uses a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessKind {
    /// As a client of MPS.
    Mps,
    /// With a compute context of its own; the MPS server is such a process.
    Compute,
    /// With a graphics context.
    Graphics,
}
