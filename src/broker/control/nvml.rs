//! One question to NVML, or one change by it, in a process of its own.
//!
//! The driver's library may hang or crash (see [`tranche_host::nvml`]), and the broker must survive both. The child
//! gets the question as an argument and writes its answer as one line of JSON.

mod child;
mod mig;
mod work;

pub use child::run_if_asked;

use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tranche_core::bounded;
use tranche_core::types::{GpuIndex, GpuUuid};
use tranche_host::nvml::NvmlProcess;
use tranche_plan::idle::GpuWork;
use tranche_plan::inventory::ComputeMode;
use tranche_plan::mig::{MigChange, MigGpu, PciModel};

/// The first argument of the child. No person would type it.
const CHILD_ARGUMENT: &str = "--nvml-ask";

/// The longest answer: the processes of a GPU are fewer than its clients can be.
const MOST_BYTES: usize = 64 << 10;

/// The same for the state of MIG: 16 GPUs with 20 profiles and 16,000 processes each have less.
const MOST_BYTES_OF_MIG: usize = 4 << 20;

/// What is asked, or changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Question {
    ComputeMode(GpuUuid),
    SetComputeMode(GpuUuid, ComputeMode),
    /// Limit the memory of a cgroup, in bytes.
    LimitCgroup(GpuUuid, String, u64),
    /// Remove that limit.
    FreeCgroup(GpuUuid, String),
    /// The processes that compute on a GPU.
    Processes(GpuUuid),
    /// Who worked lately on each of these GPUs.
    Work(Vec<GpuUuid>),
    /// The PCI ids of all GPUs.
    Models,
    /// All GPUs that have MIG.
    MigGpus,
    /// One of them.
    MigGpu(GpuUuid),
    /// Change its instances or its MIG mode.
    ChangeMig(GpuUuid, MigChange),
}

/// The child's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum NvmlAnswer {
    ComputeMode(ComputeMode),
    Processes(Vec<u32>),
    /// For each GPU that was asked about, who worked, or why that is unknown.
    Work(Vec<Result<GpuWork, String>>),
    /// The limit of a cgroup as NVML reports it, in bytes; `None`: no limit.
    CgroupLimit(Option<u64>),
    /// GPUs with their PCI ids.
    Models(Vec<(GpuIndex, PciModel)>),
    /// GPUs, and a line for each that does not say what it has.
    MigGpus(Vec<MigGpu>, Vec<String>),
    Done,
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

/// How NVML is asked.
#[derive(Debug, Clone)]
pub struct Nvml {
    /// The program to start: one that calls [`run_if_asked`].
    pub program: PathBuf,
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
        match self.ask(&Question::ComputeMode(gpu.clone()))? {
            NvmlAnswer::ComputeMode(mode) => Ok(mode),
            other => Err(unexpected(&other)),
        }
    }

    /// Sets who may use a GPU at the same time. It needs root, and lasts until the driver is unloaded.
    ///
    /// # Errors
    /// Returns why NVML did not do it.
    pub fn set_compute_mode(&self, gpu: &GpuUuid, mode: ComputeMode) -> Result<(), NvmlFailure> {
        match self.ask(&Question::SetComputeMode(gpu.clone(), mode))? {
            NvmlAnswer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// The processes that compute on a GPU, by their numbers in the pid namespace of this program.
    ///
    /// # Errors
    /// Returns why NVML did not say it.
    pub fn processes(&self, gpu: &GpuUuid) -> Result<Vec<u32>, NvmlFailure> {
        match self.ask(&Question::Processes(gpu.clone()))? {
            NvmlAnswer::Processes(pids) => Ok(pids),
            other => Err(unexpected(&other)),
        }
    }

    /// Who worked on each of `gpus` in the last [`tranche_plan::idle::SPAN`] seconds, or why that is unknown.
    ///
    /// # Errors
    /// Returns why NVML did not say it of any of them.
    pub fn work(&self, gpus: &[GpuUuid]) -> Result<Vec<Result<GpuWork, String>>, NvmlFailure> {
        match self.ask(&Question::Work(gpus.to_vec()))? {
            NvmlAnswer::Work(work) if work.len() == gpus.len() => Ok(work),
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
        match self.ask(&Question::LimitCgroup(gpu.clone(), cgroup.to_owned(), bytes))? {
            NvmlAnswer::CgroupLimit(limit) => Ok(limit),
            other => Err(unexpected(&other)),
        }
    }

    /// Removes that limit. A cgroup without one stays as it is.
    ///
    /// # Errors
    /// Returns why NVML did not do it.
    pub fn free_cgroup(&self, gpu: &GpuUuid, cgroup: &str) -> Result<(), NvmlFailure> {
        match self.ask(&Question::FreeCgroup(gpu.clone(), cgroup.to_owned()))? {
            NvmlAnswer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// The PCI ids of all GPUs that NVML finds, by index.
    ///
    /// # Errors
    /// Returns why NVML did not say it.
    pub fn models(&self) -> Result<Vec<(GpuIndex, PciModel)>, NvmlFailure> {
        match self.ask(&Question::Models)? {
            NvmlAnswer::Models(models) => Ok(models),
            other => Err(unexpected(&other)),
        }
    }

    /// The GPUs that have MIG, by index, with what each offers and has; and a line for each that does not say it.
    ///
    /// # Errors
    /// Returns why NVML did not say it.
    pub fn mig_gpus(&self) -> Result<(Vec<MigGpu>, Vec<String>), NvmlFailure> {
        match self.ask(&Question::MigGpus)? {
            NvmlAnswer::MigGpus(gpus, problems) => Ok((gpus, problems)),
            other => Err(unexpected(&other)),
        }
    }

    /// One of them.
    ///
    /// # Errors
    /// Returns why NVML did not say it; [`NvmlFailure::Unsupported`] for a GPU without MIG.
    pub fn mig_gpu(&self, gpu: &GpuUuid) -> Result<MigGpu, NvmlFailure> {
        match self.ask(&Question::MigGpu(gpu.clone()))? {
            NvmlAnswer::MigGpus(gpus, _) => gpus.into_iter().next().ok_or(NvmlFailure::Unsupported),
            other => Err(unexpected(&other)),
        }
    }

    /// Changes the instances or the MIG mode of a GPU. It needs root.
    ///
    /// # Errors
    /// Returns why NVML did not do it. A change of the mode may be pending then.
    pub fn change_mig(&self, gpu: &GpuUuid, change: &MigChange) -> Result<(), NvmlFailure> {
        match self.ask(&Question::ChangeMig(gpu.clone(), change.clone()))? {
            NvmlAnswer::Done => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&self, question: &Question) -> Result<NvmlAnswer, NvmlFailure> {
        let other = |why: String| NvmlFailure::Other(why);
        let sees_processes = matches!(
            question,
            Question::Processes(_) | Question::Work(_) | Question::MigGpus | Question::MigGpu(_)
        );
        let most_bytes = match question {
            Question::MigGpus | Question::MigGpu(_) => MOST_BYTES_OF_MIG,
            _ => MOST_BYTES,
        };
        let question = serde_json::to_string(question).map_err(|e| other(e.to_string()))?;
        let arguments = [
            OsStr::new(CHILD_ARGUMENT),
            self.library.as_os_str(),
            OsStr::new(&question),
        ];
        let started = NvmlProcess::start(&self.program, &arguments, sees_processes);
        let (mut process, pipe) = started.map_err(|e| other(format!("NVML's process cannot be started: {e}")))?;
        let line = bounded::line(pipe, most_bytes, Instant::now() + self.patience);
        let ended = process.end(Duration::ZERO);
        let answer = match line {
            Ok(line) => serde_json::from_slice(&line).ok(),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => None,
            Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                let seconds = self.patience.as_secs_f32();
                return Err(other(format!("NVML gave no answer for {seconds} s and was ended")));
            }
            Err(e) => return Err(other(format!("NVML's answer cannot be read: {e}"))),
        };
        match (answer, ended) {
            (Some(NvmlAnswer::Failed(failure)), _) => Err(failure),
            (Some(answer), _) => Ok(answer),
            (None, Ok(status)) => Err(other(format!("NVML crashed or gave an invalid answer ({status})"))),
            (None, Err(e)) => {
                let what = "NVML gave an invalid answer, and its process cannot be ended";
                Err(other(format!("{what}: {e}")))
            }
        }
    }
}

fn unexpected(answer: &NvmlAnswer) -> NvmlFailure {
    NvmlFailure::Other(format!("NVML's process answered another question: {answer:?}"))
}
