//! The file with the answers of the fake library.
//!
//! ```json
//! {
//!   "version": 12040,
//!   "gpus": [{"uuid": "GPU-…", "name": "Tesla T4", "sms": 40, "memory_mib": 15360, "used_mib": 0,
//!             "exclusive": true}],
//!   "daemon": {"percent": 60, "memory_mib": 8192},
//!   "init": "hang"
//! }
//! ```
//!
//! With `"model": {"state": "/path/of/a/file", "l2_mib": 40, "bandwidth_gb_s": 300, "bus_gb_s": 12, "slice_us": 2000,
//! "cheats": ["cap", "memory", "faults", "turns"]}` a GPU also does work: see [`crate::model`].

use crate::config_file;
use serde::Deserialize;
use std::path::PathBuf;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// As CUDA returns it: 12040 is CUDA 12.4.
    pub(crate) version: i32,
    pub(crate) gpus: Vec<Gpu>,
    /// The defaults of the MPS daemon for a client that connects to it.
    #[serde(default)]
    pub(crate) daemon: Defaults,
    /// `hang` (for ever), or the number of the error that cuInit returns.
    #[serde(default)]
    pub(crate) init: Option<String>,
    /// The number of the error that cuModuleLoadDataEx returns.
    #[serde(default)]
    pub(crate) module: Option<i32>,
    /// How processes are suspended: see [`crate::turns`].
    #[serde(default)]
    pub(crate) turns: Option<Turns>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Turns {
    /// Where processes meet.
    pub(crate) directory: PathBuf,
    /// What a context has open.
    #[serde(default)]
    pub(crate) node: Option<PathBuf>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gpu {
    /// With its prefix, `GPU-` or `MIG-`. `MIG-` alone stands for each instance that a process names.
    pub(crate) uuid: String,
    pub(crate) name: String,
    pub(crate) sms: u32,
    pub(crate) memory_mib: u64,
    /// What other processes use.
    #[serde(default)]
    pub(crate) used_mib: u64,
    /// Whether its compute mode is EXCLUSIVE_PROCESS: then only clients of the daemon get a context.
    #[serde(default)]
    pub(crate) exclusive: bool,
    #[serde(default = "capability")]
    pub(crate) capability: [i32; 2],
    /// Without one, the GPU only answers questions.
    #[serde(default)]
    pub(crate) model: Option<Model>,
}

fn capability() -> [i32; 2] {
    [8, 0]
}

/// How the GPU behaves in time.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Model {
    /// The file through which the processes share the GPU. It is made if it does not exist.
    pub(crate) state: PathBuf,
    pub(crate) l2_mib: u64,
    /// Of the memory, in 10^9 bytes per second, read and written.
    pub(crate) bandwidth_gb_s: u64,
    /// Of the bus to the host, in each direction.
    #[serde(default = "bus")]
    pub(crate) bus_gb_s: u64,
    /// How long a turn lasts.
    #[serde(default = "slice")]
    pub(crate) slice_us: u64,
    #[serde(default)]
    pub(crate) cheats: Vec<Cheat>,
}

fn bus() -> u64 {
    12
}

fn slice() -> u64 {
    2000
}

/// A promise that the GPU breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Cheat {
    /// Clients use more SMs than their percentage allows.
    Cap,
    /// Clients get more memory than their limit allows.
    Memory,
    /// A fault ends other contexts too.
    Faults,
    /// Turns are not equally long.
    Turns,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Defaults {
    pub(crate) percent: Option<u32>,
    pub(crate) memory_mib: Option<u64>,
}

/// The file in `TRANCHE_FAKE_CUDA`, else `cuda.json` in the directory of the library, else `fake-cuda.json` in the
/// nearest directory above: an image has it in its root.
fn find() -> Option<PathBuf> {
    config_file::find("TRANCHE_FAKE_CUDA", "cuda.json", "fake-cuda.json")
}

/// The configuration; `None` if it cannot be read.
pub(crate) fn read() -> Option<Config> {
    serde_json::from_slice(&std::fs::read(find()?).ok()?).ok()
}
