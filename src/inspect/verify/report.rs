//! What tranche-verify prints. It comes from inside a container, so every field may be anything.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Memory of two processes differs by less than this, in MiB, if their limits are the same.
const SAME_MEMORY: u64 = 256;

/// The version of the report that this program reads.
pub(super) const VERSION: u32 = 1;

/// The report. verify/src/print.rs writes it.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub(super) struct CudaReport {
    /// [`VERSION`].
    pub(super) version: u32,
    /// Why CUDA could not be asked.
    #[serde(default)]
    pub(super) error: Option<String>,
    #[serde(default)]
    pub(super) uid: Option<u32>,
    /// The variables that choose a device or limit it.
    #[serde(default)]
    pub(super) environment: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) mps: MpsFacts,
    /// The version of CUDA: 12040 is 12.4.
    #[serde(default)]
    pub(super) cuda: Option<i32>,
    #[serde(default)]
    pub(super) devices: Vec<Visible>,
}

/// What the program saw of an MPS daemon.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub(super) struct MpsFacts {
    #[serde(default)]
    pub(super) pipe_directory: String,
    /// Whether a daemon accepts connections there.
    #[serde(default)]
    pub(super) accepts: bool,
    #[serde(default)]
    pub(super) errno: Option<i32>,
}

/// A device that a process sees.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub(super) struct Visible {
    pub(super) name: Option<String>,
    /// Without `GPU-` or `MIG-`.
    pub(super) uuid: Option<String>,
    #[serde(default)]
    pub(super) compute_mode: Option<String>,
    pub(super) sms: Option<u64>,
    pub(super) mps: Option<bool>,
    /// In bytes.
    pub(super) memory_free: Option<u64>,
    /// In bytes.
    pub(super) memory_total: Option<u64>,
    /// In bytes.
    #[serde(default)]
    pub(super) largest_allocation: Option<u64>,
    /// Why fields are missing.
    #[serde(default)]
    pub(super) not_asked: BTreeMap<String, String>,
}

impl Visible {
    /// Why `field` is missing.
    pub(super) fn why(&self, field: &str) -> String {
        let why = self.not_asked.get(field).cloned();
        why.unwrap_or_else(|| "tranche-verify does not say it".to_owned())
    }

    /// Its UUID, or its name, for a line about it.
    pub(super) fn shown(&self) -> &str {
        let shown = self.uuid.as_deref().or(self.name.as_deref());
        shown.unwrap_or("a device without a UUID")
    }

    /// MiB that are free.
    pub(super) fn free_mib(&self) -> Option<u64> {
        self.memory_free.map(|bytes| bytes >> 20)
    }

    /// MiB in all.
    pub(super) fn total_mib(&self) -> Option<u64> {
        self.memory_total.map(|bytes| bytes >> 20)
    }

    /// `24 SMs, 8192 MiB free of 15360 MiB, under MPS`.
    pub(super) fn text(&self) -> String {
        let sms = self.sms.map(|sms| format!("{sms} SMs"));
        let memory = self.free_mib().zip(self.total_mib());
        let memory = memory.map(|(free, total)| format!("{free} MiB free of {total} MiB"));
        let mps = self
            .mps
            .map(|mps| if mps { "under MPS" } else { "not under MPS" }.to_owned());
        let facts: Vec<String> = [sms, memory, mps].into_iter().flatten().collect();
        match facts.is_empty() {
            true => "CUDA gave no answer".to_owned(),
            false => facts.join(", "),
        }
    }

    /// Whether both have the same limits.
    fn is_like(&self, other: &Self) -> bool {
        let memory = match (self.free_mib(), other.free_mib()) {
            (Some(one), Some(other)) => one.abs_diff(other) < SAME_MEMORY,
            (one, other) => one == other,
        };
        memory && (&self.uuid, self.sms, self.mps) == (&other.uuid, other.sms, other.mps)
    }
}

impl CudaReport {
    /// Lines about a process that the engine starts by exec, if it gets something else than the container's init.
    pub(super) fn differences(&self, init: &CudaReport) -> Vec<String> {
        let is_same = self.error == init.error
            && self.devices.len() == init.devices.len()
            && self
                .devices
                .iter()
                .zip(&init.devices)
                .all(|(one, other)| one.is_like(other));
        if is_same {
            return Vec::new();
        }
        let line = |what: &str| format!("a process that the engine starts by exec gets something else: {what}");
        match &self.error {
            Some(error) => vec![line(error)],
            None => self
                .devices
                .iter()
                .map(|device| line(&format!("{}: {}", device.shown(), device.text())))
                .collect(),
        }
    }
}
