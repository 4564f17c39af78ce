//! Which device a person means, before anybody has looked whether it exists.

use super::{GpuIndex, GpuUuid, MigIndex, MigUuid};
use crate::error::Error;
use std::fmt;
use std::str::FromStr;

/// A device as a person names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceId {
    /// A GPU by NVML index.
    Gpu(GpuIndex),
    /// A MIG device by the indices of its GPU and of itself.
    Mig(GpuIndex, MigIndex),
    /// A GPU by UUID.
    GpuUuid(GpuUuid),
    /// A MIG device by UUID, in today's form (`MIG-…`) or in that of drivers before 470 (`MIG-GPU-…/7/0`).
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

super::serde_as_text!(DeviceId);

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
            "MIG-GPU-8188460b-0e3a-4d7e-9d3a-0123456789ab/7/0",
        ] {
            assert_eq!(good.parse::<DeviceId>().unwrap().to_string(), good);
        }
        for bad in ["", "all", "-1", "0:", ":1", "0:1:2", "GPU-x", "0.1"] {
            assert!(bad.parse::<DeviceId>().is_err(), "{bad}");
        }
    }
}
