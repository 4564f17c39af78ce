//! The file that says what the fake library answers.
//!
//! ```json
//! {
//!   "driver": "550.54.15", "nvml": "12.550.54.15", "cuda": 12040,
//!   "faults": {"init": "hang", "strings": "unterminated", "delay_ms": 5, "errors": {"nvmlDeviceGetName": "TIMEOUT"}},
//!   "gpus": [{"uuid": "GPU-…", "minor": 0, "pci": "00000000:01:00.0", "name": "…", "memory_mib": 24564,
//!             "architecture": "ada", "compute": "8.9", "lost_after": 3, "mig": {"current": true, "instances": []}}]
//! }
//! ```
//!
//! What a GPU's entry leaves out is answered with `NVML_ERROR_NOT_SUPPORTED`, as a card that lacks it does.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// The kernel driver's version.
    pub(crate) driver: String,
    /// NVML's own version; the driver's with the CUDA major version before it.
    #[serde(default)]
    pub(crate) nvml: Option<String>,
    /// As NVML gives it: 12040 is CUDA 12.4.
    pub(crate) cuda: i32,
    #[serde(default)]
    pub(crate) faults: Faults,
    #[serde(default)]
    pub(crate) gpus: Vec<Gpu>,
    /// Read by whoever puts the library into a test host, which renames these symbols; of no effect here.
    #[serde(default)]
    #[allow(dead_code)]
    missing_symbols: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Faults {
    /// `hang` (for ever), `crash` (SIGSEGV), or an error's name or number.
    pub(crate) init: Option<String>,
    /// nvmlInit takes so long.
    #[serde(default)]
    pub(crate) init_ms: u64,
    /// nvmlInit leaves a process behind, in a session of its own, which holds a lock on this file. The file exists then.
    pub(crate) fork: Option<PathBuf>,
    /// What is written where NVML writes a string.
    #[serde(default)]
    pub(crate) strings: Strings,
    /// Each call takes so long.
    #[serde(default)]
    pub(crate) delay_ms: u64,
    /// Function to error, on every device.
    #[serde(default)]
    pub(crate) errors: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize, PartialEq, Eq, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Strings {
    #[default]
    Good,
    /// The whole buffer filled, with no NUL in it.
    Unterminated,
    /// As `Unterminated`, but in the PCI address alone.
    UnterminatedAddress,
    /// Bytes that are not valid UTF-8, with a NUL at the end.
    Garbage,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gpu {
    pub(crate) uuid: String,
    pub(crate) minor: u32,
    /// Domain (8 digits), bus, device and function: `00000000:01:00.0`.
    pub(crate) pci: String,
    /// Device in the upper 16 bits, vendor in the lower.
    #[serde(default = "vendor")]
    pub(crate) pci_device_id: u32,
    pub(crate) name: String,
    pub(crate) memory_mib: u64,
    /// NVML's name in lower case: `turing`, `ampere`, `ada`, `hopper`, `blackwell`; or NVML's number.
    pub(crate) architecture: String,
    /// CUDA compute capability, `8.9`.
    pub(crate) compute: String,
    /// NVML's number of the brand.
    pub(crate) brand: Option<u32>,
    /// 0 default, 2 prohibited, 3 exclusive process.
    #[serde(default)]
    pub(crate) compute_mode: u32,
    #[serde(default)]
    pub(crate) persistence: bool,
    /// `none`, `hmm` or `ats`.
    pub(crate) addressing: Option<String>,
    pub(crate) numa: Option<u32>,
    /// `none`, `passthrough`, `vgpu`, `host-vgpu` or `host-vsga`.
    #[serde(default)]
    pub(crate) virtualization: Option<String>,
    pub(crate) mig: Option<Mig>,
    /// Every call on this GPU from the n-th on (0: the first) gives `NVML_ERROR_GPU_IS_LOST`.
    pub(crate) lost_after: Option<u32>,
    /// Function to error, on this device alone.
    #[serde(default)]
    pub(crate) errors: BTreeMap<String, String>,
}

fn vendor() -> u32 {
    0x10de
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mig {
    pub(crate) current: bool,
    /// What the mode will be after a reset; the current one where it is left out.
    pub(crate) pending: Option<bool>,
    /// How many MIG devices the GPU can have at most.
    pub(crate) max: u32,
    #[serde(default)]
    pub(crate) instances: Vec<GpuInstance>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuInstance {
    pub(crate) id: u32,
    /// `3g.20gb`, `1g.5gb+me`.
    pub(crate) profile: String,
    /// First memory slice.
    #[serde(default)]
    pub(crate) start: u32,
    pub(crate) memory_mib: u64,
    pub(crate) sms: u32,
    /// NVML_GPU_INSTANCE_PROFILE_*, where the name does not tell: 9 for a 1g of twice the memory.
    pub(crate) nvml_profile: Option<u32>,
    /// The MIG devices in it.
    #[serde(default)]
    pub(crate) compute: Vec<ComputeInstance>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ComputeInstance {
    pub(crate) id: u32,
    pub(crate) uuid: String,
    /// Compute slices: as many as the GPU instance has where it is left out, else the `1c` of `1c.3g.20gb`.
    pub(crate) slices: Option<u32>,
    /// Index of the MIG device in its GPU.
    pub(crate) index: u32,
}

/// The file of `TRANCHE_FAKE_NVML`; without it `nvml.json` beside the library, and then `fake-nvml.json` in the nearest
/// directory above it (a test host has it in its root). None if there is none of these.
pub(crate) fn find() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("TRANCHE_FAKE_NVML") {
        return Some(path.into());
    }
    let library = own_path()?;
    let directory = library.parent()?;
    let beside = directory.join("nvml.json");
    if beside.is_file() {
        return Some(beside);
    }
    directory
        .ancestors()
        .map(|d| d.join("fake-nvml.json"))
        .find(|f| f.is_file())
}

/// Where this library was loaded from.
fn own_path() -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here: fn() -> Option<PathBuf> = own_path;
    // SAFETY: dladdr takes any address and fills the structure that it is given; we look at it only when it says so.
    let info = unsafe {
        if libc::dladdr(here as *const c_void, info.as_mut_ptr()) == 0 {
            return None;
        }
        info.assume_init()
    };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr succeeded, so the name is a C string that lives as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    std::path::absolute(Path::new(OsStr::from_bytes(name.to_bytes()))).ok()
}

/// The configuration, or one line saying why there is none.
pub(crate) fn read() -> Result<Config, String> {
    let path = find().ok_or("no TRANCHE_FAKE_NVML, no nvml.json beside the library, no fake-nvml.json above it")?;
    let text = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))
}
