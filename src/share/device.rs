//! A device that can be split, and its name.

use crate::inventory::{Gpu, MigDevice};
use crate::types::{DeviceKey, GpuIndex, MemorySize, MigIndex};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A GPU (`0`) or a MIG device (`0:1`), by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceRef {
    /// The GPU.
    pub gpu: GpuIndex,
    /// The MIG device on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<MigIndex>,
}

impl fmt::Display for DeviceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mig {
            None => f.pad(&format!("gpu {}", self.gpu)),
            Some(mig) => f.pad(&format!("gpu {}:{mig}", self.gpu)),
        }
    }
}

impl DeviceRef {
    /// The device's name in CDI: `0`, `0:1`.
    pub fn cdi_name(&self) -> String {
        match self.mig {
            None => self.gpu.to_string(),
            Some(mig) => format!("{}:{mig}", self.gpu),
        }
    }
}

/// A device with what a plan wants to know of it.
#[derive(Debug, Clone)]
pub(super) struct Target<'a> {
    pub(super) device: DeviceRef,
    pub(super) key: DeviceKey,
    pub(super) gpu: &'a Gpu,
    pub(super) uuid: Option<String>,
    pub(super) product: String,
    pub(super) memory: Option<MemorySize>,
}

impl<'a> Target<'a> {
    pub(super) fn whole(gpu: &'a Gpu) -> Self {
        Self {
            device: DeviceRef {
                gpu: gpu.index,
                mig: None,
            },
            key: DeviceKey::whole(gpu.uuid.clone()),
            gpu,
            uuid: Some(gpu.uuid.to_string()),
            product: gpu.name.clone(),
            memory: gpu.memory,
        }
    }

    pub(super) fn mig(gpu: &'a Gpu, mig: &'a MigDevice) -> Self {
        let profile = mig
            .profile
            .as_ref()
            .map_or_else(|| "MIG".to_owned(), |p| format!("MIG {p}"));
        Self {
            device: DeviceRef {
                gpu: gpu.index,
                mig: Some(mig.index),
            },
            key: DeviceKey::mig(gpu.uuid.clone(), mig.gpu_instance, mig.compute_instance),
            gpu,
            uuid: mig.uuid.as_ref().map(ToString::to_string),
            product: format!("{} {profile}", gpu.name),
            memory: mig.memory,
        }
    }
}
