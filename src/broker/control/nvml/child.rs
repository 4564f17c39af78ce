//! The process that asks.

use super::{CHILD_ARGUMENT, NvmlAnswer, NvmlFailure, Question, mig, work};
use nvml_wrapper::enum_wrappers::device as wrapper;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use std::ffi::{CString, OsStr};
use std::process::ExitCode;
use tranche_core::types::GpuUuid;
use tranche_host::nvml::{Pipe, compute_mode, meaning};
use tranche_host::sys::nvml::{CgroupLimits, ProcessList, processes};
use tranche_plan::inventory::ComputeMode;

/// Runs as the child if the program was started as one. The program in [`super::Nvml`] calls this before anything else
/// in its `main`.
pub fn run_if_asked() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != CHILD_ARGUMENT {
        return None;
    }
    let (library, question) = (arguments.next()?, arguments.next()?);
    let Ok(question) = serde_json::from_str(question.to_str()?) else {
        return Some(ExitCode::FAILURE);
    };
    let Ok(mut out) = Pipe::take() else {
        return Some(ExitCode::FAILURE);
    };
    out.write(&answer(&library, &question).unwrap_or_else(|error| NvmlAnswer::Failed(failure(&error))));
    Some(ExitCode::SUCCESS)
}

fn answer(library: &OsStr, question: &Question) -> Result<NvmlAnswer, NvmlError> {
    let nvml = Nvml::builder().lib_path(library).init()?;
    let answer = match question {
        Question::ComputeMode(gpu) => {
            let mode = device(&nvml, gpu)?.compute_mode()?;
            compute_mode(mode)
                .map(NvmlAnswer::ComputeMode)
                .ok_or(NvmlError::Unknown)
        }
        Question::SetComputeMode(gpu, mode) => {
            device(&nvml, gpu)?.set_compute_mode(wrapped(*mode))?;
            Ok(NvmlAnswer::Done)
        }
        Question::Processes(gpu) => {
            let processes = processes(&device(&nvml, gpu)?, ProcessList::Compute)?;
            Ok(NvmlAnswer::Processes(
                processes.iter().map(|process| process.pid).collect(),
            ))
        }
        Question::Work(gpus) => {
            let of = |gpu| match device(&nvml, gpu) {
                Ok(device) => work::of(&device),
                Err(error) => Err(failure(&error).to_string()),
            };
            Ok(NvmlAnswer::Work(gpus.iter().map(of).collect()))
        }
        Question::Models => mig::models(&nvml).map(NvmlAnswer::Models),
        Question::MigGpus => mig::gpus(&nvml).map(|(gpus, problems)| NvmlAnswer::MigGpus(gpus, problems)),
        Question::MigGpu(gpu) => mig::gpu(&device(&nvml, gpu)?).map(|gpu| NvmlAnswer::MigGpus(vec![gpu], Vec::new())),
        Question::ChangeMig(gpu, change) => {
            mig::change(&device(&nvml, gpu)?, change)?;
            Ok(NvmlAnswer::Done)
        }
        Question::LimitCgroup(gpu, cgroup, bytes) => {
            let device = device(&nvml, gpu)?;
            let (limits, cgroup) = (CgroupLimits::of(&nvml)?, path(cgroup)?);
            let limited = limits.set(&device, &cgroup, Some(*bytes));
            match limited.and_then(|()| limits.get(&device, &cgroup)) {
                // Here it is not the GPU that was not found.
                Err(NvmlError::NotFound) => {
                    let why = "NVML does not find the cgroup, or the controller dmem is not enabled for it";
                    Ok(NvmlAnswer::Failed(NvmlFailure::Other(why.to_owned())))
                }
                limited => limited.map(NvmlAnswer::CgroupLimit),
            }
        }
        Question::FreeCgroup(gpu, cgroup) => {
            let device = device(&nvml, gpu)?;
            let (limits, cgroup) = (CgroupLimits::of(&nvml)?, path(cgroup)?);
            match limits.get(&device, &cgroup) {
                Ok(None) => Ok(NvmlAnswer::Done),
                // It may be the limit of a cgroup above, which NVML reports for one that can have none of its own.
                _ => match limits.set(&device, &cgroup, None) {
                    Ok(()) | Err(NvmlError::NotFound) => Ok(NvmlAnswer::Done),
                    Err(error) => Err(error),
                },
            }
        }
    };
    // The process ends now. A shutdown may take long, and its result does not matter.
    std::mem::forget(nvml);
    answer
}

fn device<'a>(nvml: &'a Nvml, gpu: &GpuUuid) -> Result<Device<'a>, NvmlError> {
    nvml.device_by_uuid(gpu.as_str())
}

fn path(cgroup: &str) -> Result<CString, NvmlError> {
    CString::new(cgroup).map_err(|_| NvmlError::InvalidArg)
}

fn wrapped(mode: ComputeMode) -> wrapper::ComputeMode {
    match mode {
        ComputeMode::Default => wrapper::ComputeMode::Default,
        ComputeMode::ExclusiveThread => wrapper::ComputeMode::ExclusiveThread,
        ComputeMode::Prohibited => wrapper::ComputeMode::Prohibited,
        ComputeMode::ExclusiveProcess => wrapper::ComputeMode::ExclusiveProcess,
    }
}

fn failure(error: &NvmlError) -> NvmlFailure {
    match error {
        NvmlError::NotSupported => NvmlFailure::Unsupported,
        NvmlError::FailedToLoadSymbol(_) | NvmlError::FunctionNotFound => NvmlFailure::Missing,
        NvmlError::InUse => NvmlFailure::InUse,
        NvmlError::NotFound | NvmlError::GpuLost => NvmlFailure::Gone,
        NvmlError::LibloadingError(e) => NvmlFailure::Other(format!("NVML cannot be loaded: {e}")),
        NvmlError::NoPermission => NvmlFailure::Other("NVML refuses it to a user who is not root".to_owned()),
        error => NvmlFailure::Other(format!("NVML says: {}", meaning(error))),
    }
}
