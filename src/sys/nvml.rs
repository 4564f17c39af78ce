//! The calls of NVML that nvml-wrapper lacks. The functions of the library are looked up one by one, so a driver that
//! lacks one of them answers the others.

#![allow(unsafe_code)]

use nix::libc;
use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlDeviceAddressingMode_t, nvmlMemory_t, nvmlReturn_t};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;

/// Loads the library at `path` for the rest of the process; its constructors run.
///
/// `Nvml::builder().init()` loads the library and calls `nvmlInit` in one step. After this function it finds the library
/// loaded, so a caller can tell a library that hangs while it is loaded from one that hangs in `nvmlInit`. A failure is
/// not reported here: `init` fails again, with the loader's message.
pub fn preload(path: &OsStr) {
    let Ok(path) = CString::new(path.as_bytes()) else {
        return;
    };
    // SAFETY: the path is a C string. Running the constructors of the driver's library is what loading it means.
    unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY) };
}

/// The GPU instance of a MIG device.
///
/// # Errors
/// Returns NVML's error, or `FailedToLoadSymbol` if the library lacks the function; so do the functions below.
pub fn gpu_instance(device: &Device<'_>) -> Result<u32, NvmlError> {
    ask(
        device,
        nvml_sym(device.nvml().lib().nvmlDeviceGetGpuInstanceId.as_ref())?,
        0,
    )
}

/// The compute instance of a MIG device, within its GPU instance.
pub fn compute_instance(device: &Device<'_>) -> Result<u32, NvmlError> {
    ask(
        device,
        nvml_sym(device.nvml().lib().nvmlDeviceGetComputeInstanceId.as_ref())?,
        0,
    )
}

/// `nvmlDeviceAddressingModeType_t`; drivers since 580.
pub fn addressing_mode(device: &Device<'_>) -> Result<u32, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetAddressingMode.as_ref())?;
    let mode = nvmlDeviceAddressingMode_t {
        // NVML_STRUCT_VERSION: the size of the structure, and its version in the top byte.
        version: size_of::<nvmlDeviceAddressingMode_t>() as u32 | 1 << 24,
        value: 0,
    };
    Ok(ask(device, call, mode)?.value)
}

/// Total memory in bytes. nvml-wrapper calls `nvmlDeviceGetMemoryInfo_v2` alone, which drivers before 510 lack.
pub fn memory(device: &Device<'_>) -> Result<u64, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    let memory = nvmlMemory_t {
        total: 0,
        free: 0,
        used: 0,
    };
    Ok(ask(device, call, memory)?.total)
}

/// Calls a function of the device's library that fills one value.
fn ask<T>(
    device: &Device<'_>,
    call: &unsafe extern "C" fn(nvmlDevice_t, *mut T) -> nvmlReturn_t,
    mut value: T,
) -> Result<T, NvmlError> {
    // SAFETY: `call` is one of the functions above, which nvml.h declares with these types. It comes from the library
    // that the handle belongs to, and the library stays loaded while `device` lives. The pointer is to a valid `T`.
    nvml_try(unsafe { call(device.handle(), &raw mut value) })?;
    Ok(value)
}
