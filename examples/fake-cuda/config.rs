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
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Gpu {
    /// With its prefix, `GPU-` or `MIG-`.
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
