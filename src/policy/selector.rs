//! Which devices an entry of a policy means.

use crate::error::Error;
use crate::types::{GpuIndex, GpuUuid, MigIndex, MigUuid};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The value of `devices`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceSelector {
    /// Every device of the resource.
    All,
    /// The first so many, by index.
    Count(u32),
    /// These.
    List(Vec<DeviceId>),
}

/// A device as a person names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceId {
    /// A GPU by NVML index.
    Gpu(GpuIndex),
    /// A MIG device by the indices of its GPU and of itself.
    Mig(GpuIndex, MigIndex),
    /// A GPU by UUID.
    GpuUuid(GpuUuid),
    /// A MIG device by UUID.
    MigUuid(MigUuid),
}

impl FromStr for DeviceId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parsed = match text.split_once(':') {
            Some((gpu, mig)) => gpu.parse().and_then(|g| Ok(Self::Mig(g, mig.parse()?))),
            None if text.starts_with("GPU-") => text.parse().map(Self::GpuUuid),
            None if text.starts_with("MIG-") => text.parse().map(Self::MigUuid),
            None => text.parse().map(Self::Gpu),
        };
        parsed.map_err(|_| {
            Error::usage(format!("\"{text}\""), "not a device")
                .hint("write an index (0), a MIG index (0:1) or a UUID (GPU-…, MIG-…)")
        })
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gpu(gpu) => write!(f, "{gpu}"),
            Self::Mig(gpu, mig) => write!(f, "{gpu}:{mig}"),
            Self::GpuUuid(uuid) => write!(f, "{uuid}"),
            Self::MigUuid(uuid) => write!(f, "{uuid}"),
        }
    }
}

crate::types::serde_as_text!(DeviceId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        for good in [
            "0",
            "17",
            "0:1",
            "GPU-8188460b-0e3a-4d7e-9d3a-0123456789ab",
            "MIG-8188460b-0e3a-4d7e-9d3a-0123456789ab",
        ] {
            assert_eq!(good.parse::<DeviceId>().unwrap().to_string(), good);
        }
        for bad in ["", "all", "-1", "0:", ":1", "0:1:2", "GPU-x", "0.1"] {
            assert!(bad.parse::<DeviceId>().is_err(), "{bad}");
        }
    }
}
