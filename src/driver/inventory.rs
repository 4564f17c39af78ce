//! What the driver and its GPUs are.

use crate::convert::{
    addressing, architecture, bounded, brand, compute_mode, is_lost, meaning, mig_state, or_unknown, virtualization,
};
use crate::pipe::Pipe;
use crate::sys::nvml;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings as ffi;
use tranche_driver_protocol::{DriverFacts, GpuFacts, Line, MAX_GPUS, MAX_MIG_DEVICES, MigFacts, NvmlStep};
use tranche_plan::inventory::MigMode;
use tranche_plan::mig::Engines;

/// Asks about the driver and its GPUs.
///
/// # Errors
/// Returns why the library cannot be used.
pub(crate) fn ask(nvml: &Nvml, out: &mut Pipe) -> Result<(), String> {
    out.write(&Line::At(NvmlStep::Driver));
    let version = bounded(nvml.sys_driver_version(), ffi::NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE);
    let version = out.value("NVML", "driver version", version);
    let cuda = out.value("NVML", "CUDA version", nvml.sys_cuda_driver_version());
    let count = nvml.device_count();
    let count = count.map_err(|e| format!("does not report the number of GPUs: {}", meaning(&e)))?;
    if count > MAX_GPUS {
        return Err(format!("reports {count} GPUs, which is more than a host can have"));
    }
    out.write(&Line::Driver(DriverFacts {
        version,
        cuda,
        limits_cgroups: nvml::CgroupLimits::of(nvml).is_ok(),
        count,
    }));
    for index in 0..count {
        out.write(&Line::At(NvmlStep::Gpu(index)));
        let facts = nvml
            .device_by_index(index)
            .and_then(|device| ask_gpu(index, &device, out));
        out.write(&match facts {
            Ok(facts) => Line::Gpu(Box::new(facts)),
            Err(e) => Line::Lost {
                index,
                why: meaning(&e),
            },
        });
    }
    Ok(())
}

/// Asks about one GPU.
///
/// # Errors
/// Returns the error that shows that the GPU is gone.
fn ask_gpu(index: u32, device: &Device<'_>, out: &mut Pipe) -> Result<GpuFacts, NvmlError> {
    // A GPU that fell off the bus may still have a handle. The UUID is the first answer that needs the GPU itself, and
    // the memory is the last one.
    let uuid = unless_lost(uuid(device))?;
    out.alive();
    let gpu = &format!("gpu {index}");
    let pci = device.pci_info().map(|pci| pci.bus_id);
    let pci = bounded(pci, ffi::NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE);
    let capability = device.cuda_compute_capability().map(|c| (c.major, c.minor));
    let mut facts = GpuFacts {
        index,
        uuid: out.value(gpu, "UUID", uuid),
        minor: out.value(gpu, "minor", device.minor_number()),
        pci: out.value(gpu, "PCI address", pci),
        name: out.value(gpu, "name", name(device)),
        architecture: known(out, gpu, "architecture", device.architecture(), architecture),
        compute_capability: out.value(gpu, "compute capability", capability),
        mig: known(out, gpu, "MIG mode", device.mig_mode(), mig_state),
        compute_mode: known(out, gpu, "compute mode", device.compute_mode(), compute_mode),
        persistence: known(out, gpu, "persistence mode", device.is_in_persistent_mode(), Some),
        virtualization: known(out, gpu, "virtualization", device.virtualization_mode(), virtualization),
        addressing: known(out, gpu, "addressing mode", nvml::addressing_mode(device), addressing),
        brand: None,
        cores: None,
        memory: None,
        uses_system_memory: false,
        mig_devices: Vec::new(),
    };
    let memory = unless_lost(nvml::memory(device).map(|memory| memory.total))?;
    // NVML API reference, "nvmlDeviceGetMemoryInfo": not supported on an integrated GPU with unified memory.
    facts.uses_system_memory = matches!(memory, Err(NvmlError::NotSupported));
    facts.memory = out.value(gpu, "memory", memory);
    // Old drivers and virtual GPUs do not say it, and only checks depend on it.
    facts.cores = device.num_cores().ok();
    facts.brand = device.brand().ok().and_then(brand).map(str::to_owned);
    if facts.mig.is_some_and(|mode| mode.current == MigMode::Enabled) {
        let max = out.value(gpu, "number of MIG devices", device.mig_device_count());
        for mig in 0..max.unwrap_or(0).min(MAX_MIG_DEVICES) {
            let object = &format!("gpu {index}:{mig}");
            let instance = device.mig_device_by_index(mig);
            out.alive();
            // The indices of MIG devices have gaps.
            if !matches!(instance, Err(NvmlError::NotFound | NvmlError::InvalidArg))
                && let Some(instance) = out.value(object, "handle", instance)
            {
                facts.mig_devices.push(ask_mig(object, mig, &instance, out));
            }
        }
    }
    Ok(facts)
}

fn ask_mig(object: &str, index: u32, device: &Device<'_>, out: &mut Pipe) -> MigFacts {
    let attributes = out.value(object, "attributes", device.attributes());
    MigFacts {
        index,
        uuid: out.value(object, "UUID", uuid(device)),
        name: out.value(object, "name", name(device)),
        gpu_instance: out.value(object, "GPU instance", nvml::gpu_instance(device)),
        compute_instance: out.value(object, "compute instance", nvml::compute_instance(device)),
        memory_mib: attributes.as_ref().map(|a| a.memory_size_mb),
        gpu_slices: attributes.as_ref().map(|a| a.gpu_instance_slice_count),
        compute_slices: attributes.as_ref().map(|a| a.compute_instance_slice_count),
        engines: attributes.as_ref().map(|a| Engines {
            copy: a.shared_copy_engine_count,
            decoders: a.shared_decoder_count,
            encoders: a.shared_encoder_count,
            jpeg: a.shared_jpeg_count,
            ofa: a.shared_ofa_count,
        }),
        sms: attributes.map(|a| a.multiprocessor_count),
    }
}

/// The answer, or the error if it means that the GPU is gone.
pub(crate) fn unless_lost<T>(answer: Result<T, NvmlError>) -> Result<Result<T, NvmlError>, NvmlError> {
    match answer {
        Err(e) if is_lost(&e) => Err(e),
        answer => Ok(answer),
    }
}

/// The value of a call that may return a value that this program does not know.
fn known<W, T>(
    out: &mut Pipe,
    object: &str,
    what: &str,
    answer: Result<W, NvmlError>,
    convert: impl FnOnce(W) -> Option<T>,
) -> Option<T> {
    out.value(object, what, or_unknown(answer)).flatten().and_then(convert)
}

fn uuid(device: &Device<'_>) -> Result<String, NvmlError> {
    bounded(device.uuid(), ffi::NVML_DEVICE_UUID_V2_BUFFER_SIZE)
}

fn name(device: &Device<'_>) -> Result<String, NvmlError> {
    bounded(device.name(), ffi::NVML_DEVICE_NAME_V2_BUFFER_SIZE)
}
