//! The file with the answers of the fake library.
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
//! For a field that is missing in a GPU's entry, the library returns `NVML_ERROR_NOT_SUPPORTED`, as for a card that
//! lacks the feature.

use crate::config_file;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// The kernel driver's version.
    pub(crate) driver: String,
    /// NVML's own version. The default is the CUDA major version and the driver's version.
    #[serde(default)]
    pub(crate) nvml: Option<String>,
    /// As NVML returns it: 12040 is CUDA 12.4.
    pub(crate) cuda: i32,
    #[serde(default)]
    pub(crate) faults: Faults,
    /// Where each change of a GPU is appended, one JSON object a line, as `fake-mps` appends what it does.
    pub(crate) record: Option<PathBuf>,
    #[serde(default)]
    pub(crate) gpus: Vec<Gpu>,
    /// Used where the library is copied into a test host, which renames these symbols. It has no effect here.
    #[serde(default)]
    #[allow(dead_code)]
    missing_symbols: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Faults {
    /// `hang` (for ever), `crash` (SIGSEGV), or an error's name or number.
    pub(crate) init: Option<String>,
    /// How long nvmlInit takes.
    #[serde(default)]
    pub(crate) init_ms: u64,
    /// nvmlInit makes this file, and leaves a process in a session of its own that holds a lock on it.
    pub(crate) fork: Option<PathBuf>,
    /// nvmlInit makes the driver's control node here, by a program that it executes, as the real library does by
    /// nvidia-modprobe, and fails without it.
    pub(crate) node: Option<PathBuf>,
    /// What the strings are like.
    #[serde(default)]
    pub(crate) strings: Strings,
    /// How long each call takes.
    #[serde(default)]
    pub(crate) delay_ms: u64,
    /// The errors of functions on every device.
    #[serde(default)]
    pub(crate) errors: BTreeMap<String, String>,
    /// At one call, the process that started this one is killed, and this one ends.
    pub(crate) kills_parent: Option<Kill>,
    /// What becomes of the limit of a cgroup that is set without an error.
    #[serde(default)]
    pub(crate) cgroup_limits: CgroupLimits,
}

/// At which call a process is killed.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Kill {
    /// Each call of whatever process appends the name of its function here, in a line, and a kill `killed PID`.
    pub(crate) calls: PathBuf,
    /// Only calls of this function are counted.
    pub(crate) function: Option<String>,
    /// How many calls come before.
    pub(crate) spared: usize,
    /// Whether the call is made before.
    #[serde(default)]
    pub(crate) after: bool,
}

#[derive(Debug, Default, Deserialize, PartialEq, Eq, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CgroupLimits {
    #[default]
    Kept,
    /// It is not in effect.
    Forgotten,
    /// It is rounded up to whole GiB.
    Rounded,
}

#[derive(Debug, Default, Deserialize, PartialEq, Eq, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Strings {
    #[default]
    Good,
    /// The whole buffer filled, with no NUL in it.
    Unterminated,
    /// As `Unterminated`, but only in the PCI address.
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
    /// A GPU without memory of its own has none.
    pub(crate) memory_mib: Option<u64>,
    /// NVML's name in lower case: `turing`, `ampere`, `ada`, `hopper`, `blackwell`; or NVML's number.
    pub(crate) architecture: String,
    /// CUDA compute capability, `8.9`.
    pub(crate) compute: String,
    /// CUDA cores.
    pub(crate) cores: Option<u32>,
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
    /// Allocated memory.
    #[serde(default)]
    pub(crate) used_mib: u64,
    /// Where programs of `fake-cuda` meet: see [`crate::turns`].
    #[serde(default)]
    pub(crate) turns: Option<PathBuf>,
    pub(crate) utilization: Option<Utilization>,
    /// Those on MIG devices too. A process that does not exist in the caller's pid namespace is left out.
    #[serde(default)]
    pub(crate) processes: Vec<Process>,
    /// `{"sm_mhz": 1410, "celsius": 45, "slowed": 4}`, with the bits of nvmlClocksEventReason.
    pub(crate) clocks: Option<Clocks>,
    /// After this number of calls on this GPU, each call returns `NVML_ERROR_GPU_IS_LOST`.
    pub(crate) lost_after: Option<u32>,
    /// The errors of functions on this device only.
    #[serde(default)]
    pub(crate) errors: BTreeMap<String, String>,
}

fn vendor() -> u32 {
    0x10de
}

/// Percent of the last sample period.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Utilization {
    pub(crate) gpu: u32,
    pub(crate) memory: u32,
}

/// How fast a GPU runs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Clocks {
    pub(crate) sm_mhz: u32,
    pub(crate) celsius: u32,
    /// The bits of nvmlClocksEventReason.
    pub(crate) slowed: u64,
}

/// A process that uses the GPU. One that uses it in two ways has two entries.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) kind: ProcessKind,
    /// If it is missing, the driver does not know it, as for clients of MPS on older drivers.
    pub(crate) memory_mib: Option<u64>,
    /// Percent of the last sample period in which a kernel of it ran; missing if none did.
    pub(crate) sm: Option<u32>,
    pub(crate) gpu_instance: Option<u32>,
    pub(crate) compute_instance: Option<u32>,
}

#[derive(Debug, Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProcessKind {
    Compute,
    Graphics,
    Mps,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mig {
    pub(crate) current: bool,
    /// The mode after the next reset. The default is the current mode.
    pub(crate) pending: Option<bool>,
    /// The largest number of MIG devices.
    pub(crate) max: u32,
    #[serde(default)]
    pub(crate) instances: Vec<GpuInstance>,
    /// The table of profiles and places in `src/plan/sim/mig`. Without one, instances cannot be changed.
    #[serde(default)]
    pub(crate) product: Option<String>,
    /// How many compute instances were made; each gets a UUID of its own.
    #[serde(default)]
    pub(crate) made: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GpuInstance {
    pub(crate) id: u32,
    /// Allocated memory.
    #[serde(default)]
    pub(crate) used_mib: u64,
    /// `3g.20gb`, `1g.5gb+me`.
    pub(crate) profile: String,
    /// First memory slice.
    #[serde(default)]
    pub(crate) start: u32,
    pub(crate) memory_mib: u64,
    pub(crate) sms: u32,
    /// NVML_GPU_INSTANCE_PROFILE_*, if it does not follow from the name: 9 for a 1g with twice the memory.
    pub(crate) nvml_profile: Option<u32>,
    /// The MIG devices in it.
    #[serde(default)]
    pub(crate) compute: Vec<ComputeInstance>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ComputeInstance {
    pub(crate) id: u32,
    pub(crate) uuid: String,
    /// Compute slices: the `1c` of `1c.3g.20gb`. The default is all slices of the GPU instance.
    pub(crate) slices: Option<u32>,
    /// Its first slice. The default is its number.
    #[serde(default)]
    pub(crate) start: Option<u32>,
    /// Index of the MIG device in its GPU.
    pub(crate) index: u32,
}

/// The file in `TRANCHE_FAKE_NVML`, else `nvml.json` in the directory of the library, else `fake-nvml.json` in the
/// nearest directory above (a test host has it in its root). `None` if no such file exists.
pub(crate) fn find() -> Option<PathBuf> {
    config_file::find("TRANCHE_FAKE_NVML", "nvml.json", "fake-nvml.json")
}

/// The file with what was changed by calls: beside the configuration. The next process that opens the library finds it.
pub(crate) fn state() -> Option<PathBuf> {
    Some(find()?.with_extension("state.json"))
}

/// The file with the limits of cgroups that were set.
pub(crate) fn cgroup_limits() -> Option<PathBuf> {
    Some(find()?.with_extension("cgroups.json"))
}

/// What the files of the configuration and of changes are now: time of change, in nanoseconds, size and inode of each.
pub(crate) type Stamp = Vec<Option<(i64, u64, u64)>>;

/// See [`Stamp`].
pub(crate) fn stamp() -> Stamp {
    let files = [find(), crate::mig::changes()];
    let of = |file: PathBuf| {
        let file = std::fs::metadata(file).ok()?;
        Some((file.mtime() * 1_000_000_000 + file.mtime_nsec(), file.len(), file.ino()))
    };
    files.into_iter().map(|file| file.and_then(of)).collect()
}

/// The configuration, or one line with the reason why it cannot be read.
pub(crate) fn read() -> Result<Config, String> {
    let path = find().ok_or("no TRANCHE_FAKE_NVML, no nvml.json beside the library, no fake-nvml.json above it")?;
    let text = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut config = serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    crate::mig::overlay(&mut config);
    Ok(config)
}
