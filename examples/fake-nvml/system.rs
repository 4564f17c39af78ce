//! The functions about the library as a whole: init, shutdown, versions, the number of GPUs, and their handles.

use crate::answer::{nvml, put, put_string};
use crate::state::{Answer, Call, INVALID, NOT_FOUND, encode, init, shutdown};
use nvml_wrapper_sys::bindings::*;
use std::ffi::{CStr, c_char, c_int, c_uint};

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> nvmlReturn_t {
    init()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit() -> nvmlReturn_t {
    init()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> nvmlReturn_t {
    init()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> nvmlReturn_t {
    shutdown()
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(result: nvmlReturn_t) -> *const c_char {
    let text: &CStr = match result {
        nvmlReturn_enum_NVML_SUCCESS => c"Success",
        nvmlReturn_enum_NVML_ERROR_UNINITIALIZED => c"Uninitialized",
        nvmlReturn_enum_NVML_ERROR_INVALID_ARGUMENT => c"Invalid Argument",
        nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED => c"Not Supported",
        nvmlReturn_enum_NVML_ERROR_NO_PERMISSION => c"Insufficient Permissions",
        nvmlReturn_enum_NVML_ERROR_NOT_FOUND => c"Not Found",
        nvmlReturn_enum_NVML_ERROR_DRIVER_NOT_LOADED => c"Driver Not Loaded",
        nvmlReturn_enum_NVML_ERROR_TIMEOUT => c"Timeout",
        nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND => c"Function Not Found",
        nvmlReturn_enum_NVML_ERROR_GPU_IS_LOST => c"GPU is lost",
        nvmlReturn_enum_NVML_ERROR_RESET_REQUIRED => c"GPU requires restart",
        nvmlReturn_enum_NVML_ERROR_LIB_RM_VERSION_MISMATCH => c"Driver/library version mismatch",
        nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE => c"Insufficient Size",
        nvmlReturn_enum_NVML_ERROR_ARGUMENT_VERSION_MISMATCH => c"Argument version mismatch",
        _ => c"Unknown Error",
    };
    text.as_ptr()
}

fn by_index(call: Call, index: c_uint, device: *mut nvmlDevice_t) -> Answer {
    call.gpu(index as usize)?;
    put(device, encode(index as usize, None, None) as nvmlDevice_t)
}

fn by_uuid(call: Call, uuid: *const c_char, device: *mut nvmlDevice_t) -> Answer {
    if uuid.is_null() {
        return Err(INVALID);
    }
    // SAFETY: NVML's contract: a C string.
    let uuid = unsafe { CStr::from_ptr(uuid) }.to_bytes();
    for (g, gpu) in call.world.config.gpus.iter().enumerate() {
        if gpu.uuid.as_bytes() == uuid {
            return by_index(call, g as c_uint, device);
        }
        for (i, instance) in gpu.mig.iter().flat_map(|m| &m.instances).enumerate() {
            if let Some(c) = instance.compute.iter().position(|c| c.uuid.as_bytes() == uuid) {
                call.gpu(g)?;
                return put(device, encode(g, Some(i), Some(c)) as nvmlDevice_t);
            }
        }
    }
    Err(NOT_FOUND)
}

fn by_pci(call: Call, address: *const c_char, device: *mut nvmlDevice_t) -> Answer {
    if address.is_null() {
        return Err(INVALID);
    }
    // SAFETY: NVML's contract: a C string.
    let address = unsafe { CStr::from_ptr(address) }
        .to_string_lossy()
        .to_ascii_lowercase();
    // NVML accepts a domain of four digits and one of eight.
    let position = call
        .world
        .config
        .gpus
        .iter()
        .position(|g| g.pci.to_ascii_lowercase().ends_with(&address));
    by_index(call, position.ok_or(NOT_FOUND)? as c_uint, device)
}

fn count(call: Call, to: *mut c_uint) -> Answer {
    put(to, call.world.config.gpus.len() as c_uint)
}

nvml! {
    fn nvmlSystemGetDriverVersion(to: *mut c_char, room: c_uint) |call| {
        put_string(call, to, room, &call.world.config.driver)
    }
    fn nvmlSystemGetNVMLVersion(to: *mut c_char, room: c_uint) |call| {
        let config = &call.world.config;
        let own = format!("{}.{}", config.cuda / 1000, config.driver);
        put_string(call, to, room, config.nvml.as_deref().unwrap_or(&own))
    }
    fn nvmlSystemGetCudaDriverVersion(to: *mut c_int) |call| { put(to, call.world.config.cuda) }
    fn nvmlSystemGetCudaDriverVersion_v2(to: *mut c_int) |call| { put(to, call.world.config.cuda) }
    fn nvmlDeviceGetCount(to: *mut c_uint) |call| { count(call, to) }
    fn nvmlDeviceGetCount_v2(to: *mut c_uint) |call| { count(call, to) }
    fn nvmlDeviceGetHandleByIndex(index: c_uint, device: *mut nvmlDevice_t) |call| { by_index(call, index, device) }
    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t) |call| { by_index(call, index, device) }
    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut nvmlDevice_t) |call| { by_uuid(call, uuid, device) }
    fn nvmlDeviceGetHandleByPciBusId(address: *const c_char, device: *mut nvmlDevice_t) |call| {
        by_pci(call, address, device)
    }
    fn nvmlDeviceGetHandleByPciBusId_v2(address: *const c_char, device: *mut nvmlDevice_t) |call| {
        by_pci(call, address, device)
    }
}
