//! Questions about single GPUs and changes of them, for the broker.

use crate::clocks::GpuClocks;
use crate::usage::GpuMemory;
use serde::{Deserialize, Serialize};
use tranche_core::types::{GpuIndex, GpuUuid};
use tranche_plan::idle::GpuWork;
use tranche_plan::inventory::ComputeMode;
use tranche_plan::mig::{MigChange, MigGpu, PciModel};

/// What is asked, or changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineQuestion {
    /// Who may use a GPU at the same time.
    ComputeMode(GpuUuid),
    /// Set that.
    SetComputeMode(GpuUuid, ComputeMode),
    /// Limit the memory of a cgroup, in bytes.
    LimitCgroup(GpuUuid, String, u64),
    /// Remove that limit.
    FreeCgroup(GpuUuid, String),
    /// The processes that compute on a GPU.
    Processes(GpuUuid),
    /// The memory of a GPU, and what each process that computes there has of it.
    Memory(GpuUuid),
    /// Who worked lately on each of these GPUs.
    Work(Vec<GpuUuid>),
    /// How fast a GPU runs now, and what slows it down.
    Clocks(GpuUuid),
    /// The PCI ids of all GPUs.
    Models,
    /// All GPUs that have MIG.
    MigGpus,
    /// One of them.
    MigGpu(GpuUuid),
    /// Change its instances or its MIG mode.
    ChangeMig(GpuUuid, MigChange),
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineAnswer {
    /// Who may use a GPU at the same time.
    ComputeMode(ComputeMode),
    /// The processes that compute on a GPU, by their numbers in the pid namespace of the program.
    Processes(Vec<u32>),
    /// The memory of a GPU.
    Memory(GpuMemory),
    /// For each GPU that was asked about, who worked, or why that is unknown.
    Work(Vec<Result<GpuWork, String>>),
    /// How fast a GPU runs.
    Clocks(GpuClocks),
    /// The limit of a cgroup as NVML reports it, in bytes; `None`: no limit.
    CgroupLimit(Option<u64>),
    /// GPUs with their PCI ids.
    Models(Vec<(GpuIndex, PciModel)>),
    /// GPUs, and a line for each that does not say what it has.
    MigGpus(Vec<MigGpu>, Vec<String>),
    /// It was done.
    Done,
    /// It was not.
    Failed(NvmlFailure),
}

/// Why NVML did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum NvmlFailure {
    /// The GPU does not have this: a MIG device and a vGPU have no compute mode of their own.
    #[error("the GPU does not support it")]
    Unsupported,
    /// The library lacks the function.
    #[error("the driver's library lacks the function")]
    Missing,
    /// A process uses what is to be changed.
    #[error("it is in use")]
    InUse,
    /// The driver does not know the GPU any more, or has lost it.
    #[error("the GPU is gone")]
    Gone,
    /// Any other reason.
    #[error("{0}")]
    Other(String),
}

impl MachineQuestion {
    /// Whether it comes to the same if it is asked again without an answer to the first time: an instance may have been
    /// made, and would be made twice.
    pub fn can_be_asked_again(&self) -> bool {
        !matches!(self, Self::ChangeMig(..))
    }
}
