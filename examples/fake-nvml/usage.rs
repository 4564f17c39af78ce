//! The functions about what a GPU does now: utilisation and processes.

use crate::answer::{nvml, put};
use crate::config::{Process, ProcessKind};
use crate::state::{Answer, Call, Handle, NOT_FOUND, UNSUPPORTED};
use crate::turns;
use nvml_wrapper_sys::bindings::*;
use std::collections::BTreeMap;
use std::ffi::{c_uint, c_ulonglong};

const MIB: u64 = 1024 * 1024;
const TOO_SMALL: nvmlReturn_t = nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE;

/// The processes of a device that the caller can see: as the driver does, only those of the caller's pid namespace.
fn visible(call: Call, device: nvmlDevice_t) -> Answer<Vec<&'static Process>> {
    let (_, gpu) = call.parent(device)?;
    let instances = match call.handle(device)? {
        Handle::Gpu(_) => None,
        Handle::Mig(..) => {
            let (_, instance, compute) = call.device(device)?;
            Some((Some(instance.id), Some(compute.id)))
        }
    };
    let is_here = |process: &&Process| {
        // SAFETY: signal 0 only looks whether the process exists.
        let found = unsafe { libc::kill(process.pid as libc::pid_t, 0) } == 0;
        found || std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
    };
    let is_meant =
        |process: &&Process| instances.is_none_or(|ids| ids == (process.gpu_instance, process.compute_instance));
    Ok(gpu.processes.iter().filter(is_here).filter(is_meant).collect())
}

/// Writes `values` if the caller has room for them, and their number in any case.
///
/// # Safety
/// NVML's contract: `to` has room for `*count` values, unless it is null.
pub(crate) unsafe fn put_list<T>(count: *mut c_uint, to: *mut T, values: &[T]) -> Answer {
    let room = if to.is_null() {
        0
    } else {
        // SAFETY: NVML's contract: a pointer to the room that the caller has.
        unsafe { count.read() }
    };
    put(count, values.len() as c_uint)?;
    if (room as usize) < values.len() {
        return Err(TOO_SMALL);
    }
    if !values.is_empty() {
        // SAFETY: the caller has room for this many, as was checked above.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), to, values.len()) };
    }
    Ok(())
}

fn list(call: Call, device: nvmlDevice_t, kind: ProcessKind, count: *mut c_uint, to: *mut nvmlProcessInfo_t) -> Answer {
    let listed = visible(call, device)?
        .into_iter()
        .filter(|process| process.kind == kind);
    let of_turns = match call.handle(device)? {
        Handle::Gpu(_) if kind == ProcessKind::Compute => turns::processes(call.whole(device)?.1),
        Handle::Gpu(_) | Handle::Mig(..) => BTreeMap::new(),
    };
    let of_turns = of_turns.into_iter().map(|(pid, bytes)| nvmlProcessInfo_t {
        pid,
        usedGpuMemory: bytes,
        gpuInstanceId: c_uint::MAX,
        computeInstanceId: c_uint::MAX,
    });
    let infos: Vec<nvmlProcessInfo_t> = listed
        .map(|process| nvmlProcessInfo_t {
            pid: process.pid,
            usedGpuMemory: process.memory_mib.map_or(c_ulonglong::MAX, |mib| mib * MIB),
            gpuInstanceId: process.gpu_instance.unwrap_or(c_uint::MAX),
            computeInstanceId: process.compute_instance.unwrap_or(c_uint::MAX),
        })
        .chain(of_turns)
        .collect();
    // SAFETY: NVML's contract.
    unsafe { put_list(count, to, &infos) }
}

macro_rules! lists {
    ($($kind:ident: $($name:ident)+;)+) => {
        nvml! {$($(
            fn $name(device: nvmlDevice_t, count: *mut c_uint, to: *mut nvmlProcessInfo_t) |call| {
                list(call, device, ProcessKind::$kind, count, to)
            }
        )+)+}
    };
}

lists! {
    Compute: nvmlDeviceGetComputeRunningProcesses_v2 nvmlDeviceGetComputeRunningProcesses_v3;
    Graphics: nvmlDeviceGetGraphicsRunningProcesses_v2 nvmlDeviceGetGraphicsRunningProcesses_v3;
    Mps: nvmlDeviceGetMPSComputeRunningProcesses_v2 nvmlDeviceGetMPSComputeRunningProcesses_v3;
}

nvml! {
    fn nvmlDeviceGetUtilizationRates(device: nvmlDevice_t, to: *mut nvmlUtilization_t) |call| {
        let (_, gpu) = call.whole(device)?;
        let utilization = gpu.utilization.as_ref().ok_or(UNSUPPORTED)?;
        put(to, nvmlUtilization_t { gpu: utilization.gpu, memory: utilization.memory })
    }
    fn nvmlDeviceGetClockInfo(device: nvmlDevice_t, kind: nvmlClockType_t, to: *mut c_uint) |call| {
        let clocks = call.whole(device)?.1.clocks.as_ref();
        let clocks = clocks.filter(|_| kind == nvmlClockType_enum_NVML_CLOCK_SM);
        put(to, clocks.ok_or(UNSUPPORTED)?.sm_mhz)
    }
    fn nvmlDeviceGetTemperature(device: nvmlDevice_t, _sensor: nvmlTemperatureSensors_t, to: *mut c_uint) |call| {
        put(to, call.whole(device)?.1.clocks.as_ref().ok_or(UNSUPPORTED)?.celsius)
    }
    fn nvmlDeviceGetCurrentClocksThrottleReasons(device: nvmlDevice_t, to: *mut c_ulonglong) |call| {
        put(to, call.whole(device)?.1.clocks.as_ref().ok_or(UNSUPPORTED)?.slowed)
    }
    fn nvmlDeviceGetProcessUtilization(
        device: nvmlDevice_t,
        to: *mut nvmlProcessUtilizationSample_t,
        count: *mut c_uint,
        since: c_ulonglong,
    ) |call| {
        call.whole(device)?.1.utilization.as_ref().ok_or(UNSUPPORTED)?;
        let samples = visible(call, device)?.into_iter().filter_map(|process| {
            Some(nvmlProcessUtilizationSample_t {
                pid: process.pid,
                timeStamp: since + 1,
                smUtil: process.sm?,
                memUtil: 0,
                encUtil: 0,
                decUtil: 0,
            })
        });
        let samples: Vec<_> = samples.collect();
        if samples.is_empty() {
            return Err(NOT_FOUND);
        }
        // SAFETY: NVML's contract.
        unsafe { put_list(count, to, &samples) }
    }
}
