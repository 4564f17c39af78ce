//! Questions about single GPUs, and changes of them.

use crate::convert::{compute_mode, meaning};
use crate::sys::nvml::{CgroupLimits, ProcessList, processes};
use crate::{clocks, mig, usage, work};
use nvml_wrapper::enum_wrappers::device as wrapper;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use std::ffi::CString;
use tranche_core::types::GpuUuid;
use tranche_driver_protocol::{MachineAnswer, MachineQuestion, NvmlFailure};
use tranche_plan::inventory::ComputeMode;

/// Answers a question, or makes a change.
pub(crate) fn answer(nvml: &Nvml, question: &MachineQuestion) -> MachineAnswer {
    ask(nvml, question).unwrap_or_else(|error| MachineAnswer::Failed(failure(&error)))
}

fn ask(nvml: &Nvml, question: &MachineQuestion) -> Result<MachineAnswer, NvmlError> {
    match question {
        MachineQuestion::ComputeMode(gpu) => {
            let mode = device(nvml, gpu)?.compute_mode()?;
            compute_mode(mode)
                .map(MachineAnswer::ComputeMode)
                .ok_or(NvmlError::Unknown)
        }
        MachineQuestion::SetComputeMode(gpu, mode) => {
            device(nvml, gpu)?.set_compute_mode(wrapped(*mode))?;
            Ok(MachineAnswer::Done)
        }
        MachineQuestion::Processes(gpu) => {
            let processes = processes(&device(nvml, gpu)?, ProcessList::Compute)?;
            Ok(MachineAnswer::Processes(
                processes.iter().map(|process| process.pid).collect(),
            ))
        }
        MachineQuestion::Memory(gpu) => usage::memory_of(&device(nvml, gpu)?).map(MachineAnswer::Memory),
        MachineQuestion::Work(gpus) => {
            let of = |gpu| match device(nvml, gpu) {
                Ok(device) => work::of(&device),
                Err(error) => Err(failure(&error).to_string()),
            };
            Ok(MachineAnswer::Work(gpus.iter().map(of).collect()))
        }
        MachineQuestion::Clocks(gpu) => clocks::of(&device(nvml, gpu)?).map(MachineAnswer::Clocks),
        MachineQuestion::Models => mig::models(nvml).map(MachineAnswer::Models),
        MachineQuestion::MigGpus => mig::gpus(nvml).map(|(gpus, problems)| MachineAnswer::MigGpus(gpus, problems)),
        MachineQuestion::MigGpu(gpu) => {
            mig::gpu(&device(nvml, gpu)?).map(|gpu| MachineAnswer::MigGpus(vec![gpu], Vec::new()))
        }
        MachineQuestion::ChangeMig(gpu, change) => {
            mig::change(&device(nvml, gpu)?, change)?;
            Ok(MachineAnswer::Done)
        }
        MachineQuestion::LimitCgroup(gpu, cgroup, bytes) => {
            let device = device(nvml, gpu)?;
            let (limits, cgroup) = (CgroupLimits::of(nvml)?, path(cgroup)?);
            let limited = limits.set(&device, &cgroup, Some(*bytes));
            match limited.and_then(|()| limits.get(&device, &cgroup)) {
                // Here it is not the GPU that was not found.
                Err(NvmlError::NotFound) => {
                    let why = "NVML does not find the cgroup, or the controller dmem is not enabled for it";
                    Ok(MachineAnswer::Failed(NvmlFailure::Other(why.to_owned())))
                }
                limited => limited.map(MachineAnswer::CgroupLimit),
            }
        }
        MachineQuestion::FreeCgroup(gpu, cgroup) => {
            let device = device(nvml, gpu)?;
            let (limits, cgroup) = (CgroupLimits::of(nvml)?, path(cgroup)?);
            match limits.get(&device, &cgroup) {
                Ok(None) => Ok(MachineAnswer::Done),
                // It may be the limit of a cgroup above, which NVML reports for one that can have none of its own.
                _ => match limits.set(&device, &cgroup, None) {
                    Ok(()) | Err(NvmlError::NotFound) => Ok(MachineAnswer::Done),
                    Err(error) => Err(error),
                },
            }
        }
    }
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

pub(crate) fn failure(error: &NvmlError) -> NvmlFailure {
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
