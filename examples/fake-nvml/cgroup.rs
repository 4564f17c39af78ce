//! The functions that limit the memory of a cgroup, which drivers have since 615. nvml-wrapper-sys does not list them.
//! As in the real library, a limit ends with its cgroup, so limits are kept by the inode of its directory, in a file
//! that the next process finds.

use crate::answer::nvml;
use crate::config::{self, CgroupLimits};
use crate::state::{Answer, Call, Handle, INVALID, NOT_FOUND, UNKNOWN, UNSUPPORTED};
use nvml_wrapper_sys::bindings::*;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, c_char, c_ulonglong};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const NO_LIMIT: c_ulonglong = c_ulonglong::MAX;
const GIB: u64 = 1 << 30;

#[repr(C)]
pub struct nvmlSetMemoryLimits_v1_t {
    nameSpace: *const c_char,
    softLimit: c_ulonglong,
    hardLimit: c_ulonglong,
}

#[repr(C)]
pub struct nvmlGetMemoryLimits_v1_t {
    nameSpace: *const c_char,
    softLimit: c_ulonglong,
    hardLimit: c_ulonglong,
    currentUsed: c_ulonglong,
}

#[derive(Serialize, Deserialize)]
struct Limit {
    path: PathBuf,
    soft: u64,
    hard: u64,
}

/// Limits by GPU and inode of the cgroup.
type Limits = BTreeMap<String, Limit>;

fn limits() -> Limits {
    let text = config::cgroup_limits().and_then(|file| std::fs::read(file).ok());
    text.and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default()
}

/// The path of a cgroup, and the key of its limit.
fn place(call: Call, device: nvmlDevice_t, name: *const c_char) -> Answer<(PathBuf, String)> {
    if let Handle::Mig(..) = call.handle(device)? {
        return Err(UNSUPPORTED);
    }
    let (_, gpu) = call.whole(device)?;
    if name.is_null() {
        return Err(INVALID);
    }
    // SAFETY: NVML's contract: a C string.
    let name = unsafe { CStr::from_ptr(name) };
    let path = Path::new(OsStr::from_bytes(name.to_bytes())).to_owned();
    // The real library takes the full path of a directory.
    if !path.is_absolute() {
        return Err(INVALID);
    }
    let inode = std::fs::metadata(&path).map_err(|_| NOT_FOUND)?.ino();
    Ok((path, format!("{} {inode}", gpu.uuid)))
}

nvml! {
    fn nvmlDeviceSetMemoryLimits_v1(device: nvmlDevice_t, to: *mut nvmlSetMemoryLimits_v1_t) |call| {
        if to.is_null() {
            return Err(INVALID);
        }
        // SAFETY: NVML's contract: the caller's structure.
        let &mut nvmlSetMemoryLimits_v1_t { nameSpace, softLimit: soft, hardLimit: hard } = unsafe { &mut *to };
        let (path, key) = place(call, device, nameSpace)?;
        // SAFETY: it only asks.
        if unsafe { libc::geteuid() } != 0 {
            return Err(nvmlReturn_enum_NVML_ERROR_NO_PERMISSION);
        }
        if soft > hard {
            return Err(INVALID);
        }
        call.world.record(&json!({"event": "cgroup limit", "path": path, "soft": soft, "hard": hard}))?;
        let mut all = limits();
        match call.world.config.faults.cgroup_limits {
            CgroupLimits::Forgotten => {}
            _ if soft == 0 && hard == NO_LIMIT => drop(all.remove(&key)),
            CgroupLimits::Kept => drop(all.insert(key, Limit { path, soft, hard })),
            CgroupLimits::Rounded => drop(all.insert(key, Limit { path, soft, hard: hard.next_multiple_of(GIB) })),
        }
        let file = config::cgroup_limits().ok_or(UNKNOWN)?;
        // In one step, so that a process that is killed leaves a whole file.
        let new = file.with_extension("new");
        let written = std::fs::write(&new, json!(all).to_string()).and_then(|()| std::fs::rename(&new, file));
        written.map_err(|_| UNKNOWN)
    }
    fn nvmlDeviceGetMemoryLimits_v1(device: nvmlDevice_t, to: *mut nvmlGetMemoryLimits_v1_t) |call| {
        if to.is_null() {
            return Err(INVALID);
        }
        // SAFETY: NVML's contract: the caller's structure.
        let to = unsafe { &mut *to };
        let (_, key) = place(call, device, to.nameSpace)?;
        let limit = limits().remove(&key);
        (to.softLimit, to.hardLimit) = limit.map_or((0, NO_LIMIT), |limit| (limit.soft, limit.hard));
        to.currentUsed = 0;
        Ok(())
    }
}
