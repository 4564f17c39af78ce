//! The calls of NVML that nvml-wrapper lacks. The functions of the library are looked up one by one, so a driver that
//! lacks one of them answers the others.

#![allow(unsafe_code)]

use nix::libc;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlDeviceAddressingMode_t, nvmlMemory_t, nvmlProcessInfo_t, nvmlProcessUtilizationSample_t,
    nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE as INSUFFICIENT_SIZE, nvmlReturn_t,
};
use std::ffi::{CStr, CString, OsStr, c_char, c_ulonglong};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Loads the library at `path` for the rest of the process; its constructors run.
///
/// `Nvml::builder().init()` loads the library and calls `nvmlInit` in one step. After this function it finds the
/// library loaded, so a caller can tell a library that hangs while it is loaded from one that hangs in `nvmlInit`. A
/// failure is not reported here: `init` fails again, with the loader's message.
pub(crate) fn preload(path: &OsStr) {
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
pub(crate) fn gpu_instance(device: &Device<'_>) -> Result<u32, NvmlError> {
    ask(
        device,
        nvml_sym(device.nvml().lib().nvmlDeviceGetGpuInstanceId.as_ref())?,
        0,
    )
}

/// The compute instance of a MIG device, within its GPU instance.
pub(crate) fn compute_instance(device: &Device<'_>) -> Result<u32, NvmlError> {
    ask(
        device,
        nvml_sym(device.nvml().lib().nvmlDeviceGetComputeInstanceId.as_ref())?,
        0,
    )
}

/// `nvmlDeviceAddressingModeType_t`; drivers since 580.
pub(crate) fn addressing_mode(device: &Device<'_>) -> Result<u32, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetAddressingMode.as_ref())?;
    let mode = nvmlDeviceAddressingMode_t {
        // NVML_STRUCT_VERSION: the size of the structure, and its version in the top byte.
        version: size_of::<nvmlDeviceAddressingMode_t>() as u32 | 1 << 24,
        value: 0,
    };
    Ok(ask(device, call, mode)?.value)
}

/// Memory in bytes. nvml-wrapper calls `nvmlDeviceGetMemoryInfo_v2` alone, which drivers before 510 lack.
pub(crate) fn memory(device: &Device<'_>) -> Result<nvmlMemory_t, NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    let memory = nvmlMemory_t {
        total: 0,
        free: 0,
        used: 0,
    };
    ask(device, call, memory)
}

/// A list of processes that use a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessList {
    /// Those with a compute context.
    Compute,
    /// Those with a graphics context.
    Graphics,
    /// Clients of MPS.
    Mps,
}

/// The processes of a list. nvml-wrapper has no room for processes that start between its two calls, and calls the
/// third version of each function alone, which drivers before 510 lack. The second version fills the same structure.
pub(crate) fn processes(device: &Device<'_>, of: ProcessList) -> Result<Vec<nvmlProcessInfo_t>, NvmlError> {
    let lib = device.nvml().lib();
    let (third, second) = match of {
        ProcessList::Compute => (
            lib.nvmlDeviceGetComputeRunningProcesses_v3.as_ref(),
            lib.nvmlDeviceGetComputeRunningProcesses_v2.as_ref(),
        ),
        ProcessList::Graphics => (
            lib.nvmlDeviceGetGraphicsRunningProcesses_v3.as_ref(),
            lib.nvmlDeviceGetGraphicsRunningProcesses_v2.as_ref(),
        ),
        ProcessList::Mps => (
            lib.nvmlDeviceGetMPSComputeRunningProcesses_v3.as_ref(),
            lib.nvmlDeviceGetMPSComputeRunningProcesses_v2.as_ref(),
        ),
    };
    let call = nvml_sym(third).or_else(|_| nvml_sym(second))?;
    let empty = nvmlProcessInfo_t {
        pid: 0,
        usedGpuMemory: 0,
        gpuInstanceId: 0,
        computeInstanceId: 0,
    };
    // SAFETY: nvml.h declares `call` with these types: it fills at most `count` structures and sets `count`.
    list(empty, |count, to| unsafe { call(device.handle(), count, to) })
}

/// The samples of the last `span` of processes that ran a kernel; none if no process did.
pub(crate) fn process_utilization(
    device: &Device<'_>,
    span: Duration,
) -> Result<Vec<nvmlProcessUtilizationSample_t>, NvmlError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let since = u64::try_from(now.saturating_sub(span).as_micros()).unwrap_or(0);
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetProcessUtilization.as_ref())?;
    let empty = nvmlProcessUtilizationSample_t {
        pid: 0,
        timeStamp: 0,
        smUtil: 0,
        memUtil: 0,
        encUtil: 0,
        decUtil: 0,
    };
    // SAFETY: nvml.h declares `call` with these types: it fills at most `count` structures and sets `count`.
    match list(empty, |count, to| unsafe { call(device.handle(), to, count, since) }) {
        Err(NvmlError::NotFound) => Ok(Vec::new()),
        samples => samples,
    }
}

/// `NVML_DEVICE_MEMORY_LIMIT_MAX`: no limit.
const NO_LIMIT: c_ulonglong = c_ulonglong::MAX;

/// `nvmlSetMemoryLimits_v1_t`
#[repr(C)]
struct NewLimits {
    /// The full path of the cgroup's directory.
    name_space: *const c_char,
    /// Bytes that are guaranteed to the cgroup.
    soft: c_ulonglong,
    /// The most bytes that the processes of the cgroup can allocate.
    hard: c_ulonglong,
}

/// `nvmlGetMemoryLimits_v1_t`
#[repr(C)]
struct CurrentLimits {
    name_space: *const c_char,
    soft: c_ulonglong,
    hard: c_ulonglong,
    /// Bytes that are allocated.
    used: c_ulonglong,
}

/// The functions that limit the memory of a GPU for the processes of a cgroup (version 2). Drivers have them since 615,
/// and nvml-wrapper-sys does not list them, so they are looked up by name. The structures have no version field (nvml.h
/// of CUDA 13.4). They refuse the handle of a MIG device, and setting needs root.
pub(crate) struct CgroupLimits {
    set: unsafe extern "C" fn(nvmlDevice_t, *mut NewLimits) -> nvmlReturn_t,
    get: unsafe extern "C" fn(nvmlDevice_t, *mut CurrentLimits) -> nvmlReturn_t,
}

impl CgroupLimits {
    /// The functions of this library, whose device handles they take.
    ///
    /// # Errors
    /// Returns `FailedToLoadSymbol` if the library lacks one of them.
    pub(crate) fn of(nvml: &Nvml) -> Result<Self, NvmlError> {
        let library = &nvml.lib().__library;
        // SAFETY: nvml.h declares these two functions with these types. They are called with handles of this library
        // only while it is loaded, because a handle borrows from `Nvml`.
        let found = unsafe {
            library
                .get(b"nvmlDeviceSetMemoryLimits_v1\0")
                .and_then(|set| Ok((*set, *library.get(b"nvmlDeviceGetMemoryLimits_v1\0")?)))
        };
        let (set, get) = found.map_err(|error| NvmlError::FailedToLoadSymbol(error.to_string()))?;
        Ok(Self { set, get })
    }

    /// Sets the most bytes that the processes of `cgroup` can allocate on the device; `None` removes the limit. Nothing
    /// is guaranteed to the cgroup: such a guarantee stays with the cgroups above it when the cgroup is removed.
    ///
    /// # Errors
    /// Returns NVML's error.
    pub(crate) fn set(&self, device: &Device<'_>, cgroup: &CStr, bytes: Option<u64>) -> Result<(), NvmlError> {
        let mut limits = NewLimits {
            name_space: cgroup.as_ptr(),
            soft: 0,
            hard: bytes.unwrap_or(NO_LIMIT),
        };
        // SAFETY: nvml.h declares the function with these types. The path lives until the call has returned.
        nvml_try(unsafe { (self.set)(device.handle(), &raw mut limits) })
    }

    /// The most bytes that the processes of `cgroup` can allocate on the device; `None`: no limit.
    ///
    /// # Errors
    /// Returns NVML's error.
    pub(crate) fn get(&self, device: &Device<'_>, cgroup: &CStr) -> Result<Option<u64>, NvmlError> {
        let mut limits = CurrentLimits {
            name_space: cgroup.as_ptr(),
            soft: 0,
            hard: NO_LIMIT,
            used: 0,
        };
        // SAFETY: as for `set`.
        nvml_try(unsafe { (self.get)(device.handle(), &raw mut limits) })?;
        Ok(Some(limits.hard).filter(|hard| *hard != NO_LIMIT))
    }
}

/// The list that `call` writes to a place with room for a number of values. It sets that number to how many it wrote,
/// or, if the room is too small, to how many there are.
pub(super) fn list<T: Copy>(
    empty: T,
    mut call: impl FnMut(*mut u32, *mut T) -> nvmlReturn_t,
) -> Result<Vec<T>, NvmlError> {
    /// More processes than a GPU has contexts for. A library that reports more is not believed.
    const MOST: u32 = 16 << 10;
    let mut room = 128;
    loop {
        let mut values = vec![empty; room as usize];
        let mut count = room;
        match call(&raw mut count, values.as_mut_ptr()) {
            // Further processes may start before the next call.
            INSUFFICIENT_SIZE if room < MOST => {
                room = count.max(room).saturating_mul(2).min(MOST);
            }
            result => {
                nvml_try(result)?;
                // A count beyond the room would be the library's mistake.
                values.truncate(count as usize);
                return Ok(values);
            }
        }
    }
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
