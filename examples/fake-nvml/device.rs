//! The functions about one GPU or MIG device.

use crate::answer::{fixed, nvml, put, put_string, version};
use crate::config::Strings;
use crate::instance::title;
use crate::mode;
use crate::state::{Answer, Call, Handle, UNSUPPORTED};
use crate::turns;
use nvml_wrapper_sys::bindings::*;
use std::ffi::{c_char, c_int, c_uint};

const MIB: u64 = 1024 * 1024;

/// The parts of `00000000:01:00.0`, the form in the test hosts; zero for a part that is not a number.
fn pci_parts(address: &str) -> [c_uint; 3] {
    let mut parts = address
        .split([':', '.'])
        .map(|p| c_uint::from_str_radix(p, 16).unwrap_or(0));
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

fn pci(call: Call, device: nvmlDevice_t, to: *mut nvmlPciInfo_t) -> Answer {
    let (_, gpu) = call.parent(device)?;
    let [domain, bus, slot] = pci_parts(&gpu.pci);
    let address = gpu.pci.to_ascii_uppercase();
    put(
        to,
        nvmlPciInfo_t {
            // The old field has room for only four digits of the domain.
            busIdLegacy: fixed(address.get(4..).unwrap_or(&address)),
            domain,
            bus,
            device: slot,
            pciDeviceId: gpu.pci_device_id,
            pciSubSystemId: gpu.pci_device_id,
            busId: match call.world.config.faults.strings {
                Strings::UnterminatedAddress => [b'x' as c_char; _],
                _ => fixed(&address),
            },
        },
    )
}

/// Memory of a GPU, or of the GPU instance that a MIG device is in: all of it, and what is allocated.
fn memory(call: Call, device: nvmlDevice_t) -> Answer<(u64, u64)> {
    let (total, used) = match call.handle(device)? {
        Handle::Gpu(_) => {
            let (_, gpu) = call.parent(device)?;
            let of_turns: u64 = turns::processes(gpu).values().sum();
            let used = gpu.used_mib * MIB + of_turns;
            return Ok((gpu.memory_mib.ok_or(UNSUPPORTED)? * MIB, used));
        }
        Handle::Mig(..) => {
            let (_, instance, _) = call.device(device)?;
            (instance.memory_mib, instance.used_mib)
        }
    };
    Ok((total * MIB, used * MIB))
}

nvml! {
    fn nvmlDeviceGetUUID(device: nvmlDevice_t, to: *mut c_char, room: c_uint) |call| {
        match call.handle(device)? {
            Handle::Gpu(position) => put_string(call, to, room, &call.gpu(position)?.uuid),
            Handle::Mig(..) => put_string(call, to, room, &call.device(device)?.2.uuid),
        }
    }
    fn nvmlDeviceGetName(device: nvmlDevice_t, to: *mut c_char, room: c_uint) |call| {
        match call.handle(device)? {
            Handle::Gpu(position) => put_string(call, to, room, &call.gpu(position)?.name),
            Handle::Mig(..) => {
                let (gpu, instance, compute) = call.device(device)?;
                put_string(call, to, room, &format!("{} {}", gpu.name, title(instance, compute)))
            }
        }
    }
    fn nvmlDeviceGetIndex(device: nvmlDevice_t, to: *mut c_uint) |call| {
        match call.handle(device)? {
            Handle::Gpu(position) => call.gpu(position).and_then(|_| put(to, position as c_uint)),
            Handle::Mig(..) => put(to, call.device(device)?.2.index),
        }
    }
    fn nvmlDeviceGetMinorNumber(device: nvmlDevice_t, to: *mut c_uint) |call| { put(to, call.whole(device)?.1.minor) }
    fn nvmlDeviceGetPciInfo(device: nvmlDevice_t, to: *mut nvmlPciInfo_t) |call| { pci(call, device, to) }
    fn nvmlDeviceGetPciInfo_v2(device: nvmlDevice_t, to: *mut nvmlPciInfo_t) |call| { pci(call, device, to) }
    fn nvmlDeviceGetPciInfo_v3(device: nvmlDevice_t, to: *mut nvmlPciInfo_t) |call| { pci(call, device, to) }
    fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, to: *mut nvmlMemory_t) |call| {
        let (total, used) = memory(call, device)?;
        put(to, nvmlMemory_t { total, free: total - used, used })
    }
    fn nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, to: *mut nvmlMemory_v2_t) |call| {
        // SAFETY: NVML's contract: the caller has set the version of the structure.
        unsafe { version(to, 2)? };
        let (total, used) = memory(call, device)?;
        let version = size_of::<nvmlMemory_v2_t>() as u32 | 2 << 24;
        put(to, nvmlMemory_v2_t { version, total, reserved: 0, free: total - used, used })
    }
    fn nvmlDeviceGetCudaComputeCapability(device: nvmlDevice_t, major: *mut c_int, minor: *mut c_int) |call| {
        let (_, gpu) = call.parent(device)?;
        let (first, second) = gpu.compute.split_once('.').ok_or(UNSUPPORTED)?;
        put(major, first.parse().map_err(|_| UNSUPPORTED)?)?;
        put(minor, second.parse().map_err(|_| UNSUPPORTED)?)
    }
    fn nvmlDeviceGetNumGpuCores(device: nvmlDevice_t, to: *mut c_uint) |call| {
        put(to, call.parent(device)?.1.cores.ok_or(UNSUPPORTED)?)
    }
    fn nvmlDeviceGetArchitecture(device: nvmlDevice_t, to: *mut nvmlDeviceArchitecture_t) |call| {
        put(to, match call.parent(device)?.1.architecture.as_str() {
            "kepler" => NVML_DEVICE_ARCH_KEPLER,
            "maxwell" => NVML_DEVICE_ARCH_MAXWELL,
            "pascal" => NVML_DEVICE_ARCH_PASCAL,
            "volta" => NVML_DEVICE_ARCH_VOLTA,
            "turing" => NVML_DEVICE_ARCH_TURING,
            "ampere" => NVML_DEVICE_ARCH_AMPERE,
            "ada" => NVML_DEVICE_ARCH_ADA,
            "hopper" => NVML_DEVICE_ARCH_HOPPER,
            "blackwell" => NVML_DEVICE_ARCH_BLACKWELL,
            number => number.parse().unwrap_or(NVML_DEVICE_ARCH_UNKNOWN),
        })
    }
    fn nvmlDeviceGetBrand(device: nvmlDevice_t, to: *mut nvmlBrandType_t) |call| {
        put(to, call.parent(device)?.1.brand.ok_or(UNSUPPORTED)?)
    }
    fn nvmlDeviceGetComputeMode(device: nvmlDevice_t, to: *mut nvmlComputeMode_t) |call| {
        let (_, gpu) = call.whole(device)?;
        put(to, mode::changed(gpu).unwrap_or(gpu.compute_mode))
    }
    fn nvmlDeviceSetComputeMode(device: nvmlDevice_t, to: nvmlComputeMode_t) |call| {
        let (_, gpu) = call.whole(device)?;
        // MIG user guide, "CUDA MPS": no EXCLUSIVE_PROCESS on MIG. A guest cannot change what the hypervisor shares.
        let is_mig = gpu.mig.as_ref().is_some_and(|mig| mig.current);
        if is_mig || gpu.virtualization.as_deref() == Some("vgpu") {
            return Err(UNSUPPORTED);
        }
        mode::change(call.world, gpu, to)
    }
    fn nvmlDeviceGetPersistenceMode(device: nvmlDevice_t, to: *mut nvmlEnableState_t) |call| {
        put(to, call.whole(device)?.1.persistence.into())
    }
    fn nvmlDeviceGetAddressingMode(device: nvmlDevice_t, to: *mut nvmlDeviceAddressingMode_t) |call| {
        // SAFETY: NVML's contract: the caller has set the version of the structure.
        unsafe { version(to, 1)? };
        let value = match call.parent(device)?.1.addressing.as_deref() {
            Some("none") => nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_NONE,
            Some("hmm") => nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_HMM,
            Some("ats") => nvmlDeviceAddressingModeType_t_NVML_DEVICE_ADDRESSING_MODE_ATS,
            _ => return Err(UNSUPPORTED),
        };
        let version = size_of::<nvmlDeviceAddressingMode_t>() as u32 | 1 << 24;
        put(to, nvmlDeviceAddressingMode_t { version, value })
    }
    fn nvmlDeviceGetNumaNodeId(device: nvmlDevice_t, to: *mut c_uint) |call| {
        put(to, call.parent(device)?.1.numa.ok_or(UNSUPPORTED)?)
    }
    fn nvmlDeviceGetVirtualizationMode(device: nvmlDevice_t, to: *mut nvmlGpuVirtualizationMode_t) |call| {
        put(to, match call.parent(device)?.1.virtualization.as_deref() {
            None | Some("none") => nvmlGpuVirtualizationMode_NVML_GPU_VIRTUALIZATION_MODE_NONE,
            Some("passthrough") => nvmlGpuVirtualizationMode_NVML_GPU_VIRTUALIZATION_MODE_PASSTHROUGH,
            Some("vgpu") => nvmlGpuVirtualizationMode_NVML_GPU_VIRTUALIZATION_MODE_VGPU,
            Some("host-vgpu") => nvmlGpuVirtualizationMode_NVML_GPU_VIRTUALIZATION_MODE_HOST_VGPU,
            Some("host-vsga") => nvmlGpuVirtualizationMode_NVML_GPU_VIRTUALIZATION_MODE_HOST_VSGA,
            Some(_) => return Err(UNSUPPORTED),
        })
    }
}
