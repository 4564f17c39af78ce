//! What the GPUs do now.

use crate::convert::{bounded, compute_mode, meaning, or_unknown};
use crate::inventory::unless_lost;
use crate::pipe::Pipe;
use crate::sys::nvml::{self, ProcessList};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as ffi;
use std::collections::BTreeMap;
use std::time::Duration;
use tranche_driver_protocol::{
    GpuMemory, GpuUsage, Line, MAX_GPUS, MAX_MIG_DEVICES, MemoryUsage, MigUsage, NvmlStep, ProcessKind, ProcessUsage,
};

/// Over how long the utilisation of a process is looked up. The driver keeps one sample of each process for each sixth
/// of a second to a second, by GPU (nvml.h, `nvmlDeviceGetProcessUtilization`).
const SAMPLES_OF: Duration = Duration::from_secs(2);

/// Asks about every GPU.
///
/// # Errors
/// Returns why the library cannot be used.
pub(super) fn ask(nvml: &Nvml, out: &mut Pipe) -> Result<(), String> {
    out.write(&Line::At(NvmlStep::Driver));
    let count = nvml.device_count();
    let count = count.map_err(|e| format!("does not report the number of GPUs: {}", meaning(&e)))?;
    for index in 0..count.min(MAX_GPUS) {
        out.write(&Line::At(NvmlStep::Gpu(index)));
        let usage = nvml
            .device_by_index(index)
            .and_then(|device| ask_gpu(index, &device, out));
        out.write(&match usage {
            Ok(usage) => Line::Usage(Box::new(usage)),
            Err(e) => Line::Lost {
                index,
                why: meaning(&e),
            },
        });
    }
    Ok(())
}

/// # Errors
/// Returns the error that shows that the GPU is gone.
fn ask_gpu(index: u32, device: &Device<'_>, out: &mut Pipe) -> Result<GpuUsage, NvmlError> {
    let uuid = unless_lost(bounded(device.uuid(), ffi::NVML_DEVICE_UUID_V2_BUFFER_SIZE))?;
    let gpu = &format!("gpu {index}");
    let busy = out.value(gpu, "utilization", device.utilization_rates());
    let is_mig = |mode: nvml_wrapper::structs::device::MigMode| mode.current == ffi::NVML_DEVICE_MIG_ENABLE;
    let is_mig = device.mig_mode().is_ok_and(is_mig);
    let mode = out.value(gpu, "compute mode", or_unknown(device.compute_mode()));
    let memory = unless_lost(memory(device))?;
    Ok(GpuUsage {
        index,
        uuid: out.value(gpu, "UUID", uuid),
        uses_system_memory: matches!(memory, Err(NvmlError::NotSupported)),
        memory: out.value(gpu, "memory", memory),
        busy: busy.as_ref().map(|busy| busy.gpu),
        memory_busy: busy.map(|busy| busy.memory),
        compute_mode: mode.flatten().and_then(compute_mode),
        mig: if is_mig {
            mig_devices(gpu, device, out)
        } else {
            Vec::new()
        },
        processes: processes(gpu, device, out),
    })
}

fn mig_devices(gpu: &str, device: &Device<'_>, out: &mut Pipe) -> Vec<MigUsage> {
    let most = out.value(gpu, "number of MIG devices", device.mig_device_count());
    let usage = |index| {
        let device = device.mig_device_by_index(index).ok()?;
        let object = &format!("{gpu}:{index}");
        Some(MigUsage {
            index,
            gpu_instance: out.value(object, "GPU instance", nvml::gpu_instance(&device)),
            compute_instance: out.value(object, "compute instance", nvml::compute_instance(&device)),
            memory: out.value(object, "memory", memory(&device)),
        })
    };
    // The indices of MIG devices have gaps.
    (0..most.unwrap_or(0).min(MAX_MIG_DEVICES)).filter_map(usage).collect()
}

/// The memory of a device. Version 2 does not count what the driver keeps for itself; drivers before 510 lack it.
fn memory(device: &Device<'_>) -> Result<MemoryUsage, NvmlError> {
    let (total, used) = match device.memory_info() {
        Ok(memory) => (memory.total, memory.used),
        Err(NvmlError::FailedToLoadSymbol(_)) => {
            let memory = nvml::memory(device)?;
            (memory.total, memory.used)
        }
        Err(e) => return Err(e),
    };
    Ok(MemoryUsage { total, used })
}

/// The memory of a GPU, and what each process that computes there has of it.
pub(crate) fn memory_of(device: &Device<'_>) -> Result<GpuMemory, NvmlError> {
    let MemoryUsage { total, used } = memory(device)?;
    let processes = nvml::processes(device, ProcessList::Compute)?;
    let known = |memory: u64| Some(memory).filter(|memory| *memory != u64::MAX);
    Ok(GpuMemory {
        total,
        used,
        processes: processes
            .iter()
            .map(|process| (process.pid, known(process.usedGpuMemory)))
            .collect(),
    })
}

/// The processes on a GPU and its MIG devices. A process is in several lists if it uses the GPU in several ways.
fn processes(gpu: &str, device: &Device<'_>, out: &mut Pipe) -> Option<Vec<ProcessUsage>> {
    let mut found: BTreeMap<(u32, Option<u32>, Option<u32>), ProcessUsage> = BTreeMap::new();
    let mut is_known = false;
    for (list, kind) in [
        (ProcessList::Compute, ProcessKind::Compute),
        (ProcessList::Graphics, ProcessKind::Graphics),
        (ProcessList::Mps, ProcessKind::Mps),
    ] {
        let what = format!("{kind:?} processes").to_lowercase();
        let Some(listed) = out.value(gpu, &what, nvml::processes(device, list)) else {
            continue;
        };
        is_known = true;
        for info in listed {
            let instance = |id: u32| Some(id).filter(|id| *id != u32::MAX);
            let (gpu_instance, compute_instance) = (instance(info.gpuInstanceId), instance(info.computeInstanceId));
            let process = found.entry((info.pid, gpu_instance, compute_instance)).or_default();
            process.pid = info.pid;
            (process.gpu_instance, process.compute_instance) = (gpu_instance, compute_instance);
            process.kinds.insert(kind);
            // NVML_VALUE_NOT_AVAILABLE is -1 (nvml.h, `nvmlProcessInfo_t`).
            let memory = Some(info.usedGpuMemory).filter(|memory| *memory != u64::MAX);
            process.memory = process.memory.max(memory);
        }
    }
    let samples = busy(device);
    let mut found: Vec<ProcessUsage> = found.into_values().collect();
    if let Some(samples) = out.value(gpu, "utilization of processes", samples) {
        for process in &mut found {
            process.busy = Some(samples.get(&process.pid).copied().unwrap_or(0));
        }
    }
    is_known.then_some(found)
}

/// The utilisation of each process that ran a kernel lately: its newest sample.
fn busy(device: &Device<'_>) -> Result<BTreeMap<u32, u32>, NvmlError> {
    let mut newest: BTreeMap<u32, (u64, u32)> = BTreeMap::new();
    for sample in nvml::process_utilization(device, SAMPLES_OF)? {
        let known = newest.entry(sample.pid).or_default();
        *known = (*known).max((sample.timeStamp, sample.smUtil.min(100)));
    }
    Ok(newest.into_iter().map(|(pid, (_, busy))| (pid, busy)).collect())
}
