//! Questions about single GPUs and changes of them, which `tranche-driver` answers and makes for the broker.
//!
//! The driver's library may hang or crash, and the broker must survive both, so it never loads it.

mod resident;

pub use resident::ResidentDriver;
pub use tranche_driver_protocol::NvmlFailure;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tranche_core::types::{GpuIndex, GpuUuid};
use tranche_driver_protocol::{GpuClocks, GpuMemory, MachineAnswer, MachineQuestion};
use tranche_plan::idle::GpuWork;
use tranche_plan::inventory::ComputeMode;
use tranche_plan::mig::{MigChange, MigGpu, PciModel};

/// How NVML is asked.
#[derive(Debug, Clone)]
pub struct Nvml {
    /// The program that asks it.
    pub driver: Arc<ResidentDriver>,
    /// The driver's library.
    pub library: PathBuf,
    /// How long an answer may take. Without persistence mode, the driver starts the GPUs first.
    pub patience: Duration,
}

impl Nvml {
    /// Who may use a GPU at the same time.
    ///
    /// # Errors
    /// Returns why NVML did not say it.
    pub fn compute_mode(&self, gpu: &GpuUuid) -> Result<ComputeMode, NvmlFailure> {
        match self.ask(&MachineQuestion::ComputeMode(gpu.clone()))? {
            MachineAnswer::ComputeMode(mode) => Ok(mode),
            other => Err(unexpected(&other)),
        }
    }

    /// Sets who may use a GPU at the same time. It needs root, and lasts until the driver is unloaded.
    ///
    /// # Errors
    /// Returns why NVML did not do it.
    pub fn set_compute_mode(&self, gpu: &GpuUuid, mode: ComputeMode) -> Result<(), NvmlFailure> {
        match self.ask(&MachineQuestion::SetComputeMode(gpu.clone(), mode))? {
            MachineAnswer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// The processes that compute on a GPU, by their numbers in the pid namespace of this program.
    ///
    /// # Errors
    /// Returns why NVML did not say it.
    pub fn processes(&self, gpu: &GpuUuid) -> Result<Vec<u32>, NvmlFailure> {
        match self.ask(&MachineQuestion::Processes(gpu.clone()))? {
            MachineAnswer::Processes(pids) => Ok(pids),
            other => Err(unexpected(&other)),
        }
    }

    /// The memory of a GPU, and what each process that computes there has of it.
    ///
    /// # Errors
    /// Returns why NVML did not say it.
    pub fn memory(&self, gpu: &GpuUuid) -> Result<GpuMemory, NvmlFailure> {
        match self.ask(&MachineQuestion::Memory(gpu.clone()))? {
            MachineAnswer::Memory(memory) => Ok(memory),
            other => Err(unexpected(&other)),
        }
    }

    /// Who worked on each of `gpus` in the last [`tranche_plan::idle::SPAN`] seconds, or why that is unknown.
    ///
    /// # Errors
    /// Returns why NVML did not say it of any of them.
    pub fn work(&self, gpus: &[GpuUuid]) -> Result<Vec<Result<GpuWork, String>>, NvmlFailure> {
        match self.ask(&MachineQuestion::Work(gpus.to_vec()))? {
            MachineAnswer::Work(work) if work.len() == gpus.len() => Ok(work),
            other => Err(unexpected(&other)),
        }
    }

    /// How fast a GPU runs now, and what slows it down.
    ///
    /// # Errors
    /// Returns why NVML did not say it.
    pub fn clocks(&self, gpu: &GpuUuid) -> Result<GpuClocks, NvmlFailure> {
        match self.ask(&MachineQuestion::Clocks(gpu.clone()))? {
            MachineAnswer::Clocks(clocks) => Ok(clocks),
            other => Err(unexpected(&other)),
        }
    }

    /// Limits the memory of a GPU that the processes of the cgroup in the directory `cgroup` can allocate, in bytes. It
    /// needs root, cgroups of version 2 and a driver since 615, and lasts as long as the cgroup and the driver.
    /// Returns the limit that NVML then reports; `None`: no limit.
    ///
    /// # Errors
    /// Returns why NVML did not do it.
    pub fn limit_cgroup(&self, gpu: &GpuUuid, cgroup: &str, bytes: u64) -> Result<Option<u64>, NvmlFailure> {
        match self.ask(&MachineQuestion::LimitCgroup(gpu.clone(), cgroup.to_owned(), bytes))? {
            MachineAnswer::CgroupLimit(limit) => Ok(limit),
            other => Err(unexpected(&other)),
        }
    }

    /// Removes that limit. A cgroup without one stays as it is.
    ///
    /// # Errors
    /// Returns why NVML did not do it.
    pub fn free_cgroup(&self, gpu: &GpuUuid, cgroup: &str) -> Result<(), NvmlFailure> {
        match self.ask(&MachineQuestion::FreeCgroup(gpu.clone(), cgroup.to_owned()))? {
            MachineAnswer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// The PCI ids of all GPUs that NVML finds, by index.
    ///
    /// # Errors
    /// Returns why NVML did not say it.
    pub fn models(&self) -> Result<Vec<(GpuIndex, PciModel)>, NvmlFailure> {
        match self.ask(&MachineQuestion::Models)? {
            MachineAnswer::Models(models) => Ok(models),
            other => Err(unexpected(&other)),
        }
    }

    /// The GPUs that have MIG, by index, with what each offers and has; and a line for each that does not say it.
    ///
    /// # Errors
    /// Returns why NVML did not say it.
    pub fn mig_gpus(&self) -> Result<(Vec<MigGpu>, Vec<String>), NvmlFailure> {
        match self.ask(&MachineQuestion::MigGpus)? {
            MachineAnswer::MigGpus(gpus, problems) => Ok((gpus, problems)),
            other => Err(unexpected(&other)),
        }
    }

    /// One of them.
    ///
    /// # Errors
    /// Returns why NVML did not say it; [`NvmlFailure::Unsupported`] for a GPU without MIG.
    pub fn mig_gpu(&self, gpu: &GpuUuid) -> Result<MigGpu, NvmlFailure> {
        match self.ask(&MachineQuestion::MigGpu(gpu.clone()))? {
            MachineAnswer::MigGpus(gpus, _) => gpus.into_iter().next().ok_or(NvmlFailure::Unsupported),
            other => Err(unexpected(&other)),
        }
    }

    /// Changes the instances or the MIG mode of a GPU. It needs root.
    ///
    /// # Errors
    /// Returns why NVML did not do it. A change of the mode may be pending then.
    pub fn change_mig(&self, gpu: &GpuUuid, change: &MigChange) -> Result<(), NvmlFailure> {
        match self.ask(&MachineQuestion::ChangeMig(gpu.clone(), change.clone()))? {
            MachineAnswer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&self, question: &MachineQuestion) -> Result<MachineAnswer, NvmlFailure> {
        match self.driver.ask(&self.library, self.patience, question)? {
            MachineAnswer::Failed(failure) => Err(failure),
            answer => Ok(answer),
        }
    }

    /// Ends the process that has the library loaded, if there is one: NVML keeps the driver from resetting a GPU, and
    /// from being unloaded.
    pub fn let_go(&self) {
        self.driver.let_go();
    }
}

fn unexpected(answer: &MachineAnswer) -> NvmlFailure {
    NvmlFailure::Other(format!("NVML's process answered another question: {answer:?}"))
}
