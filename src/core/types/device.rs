//! A device by its indices, and a device as a person names it.

use super::{GpuIndex, GpuUuid, MigIndex, MigUuid, Minor, PciAddress};
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A GPU (`0`) or a MIG device on it (`0:1`), by NVML's indices.
///
/// Indices are for names and messages of one inventory. The ledger uses [`super::DeviceKey`], because indices change
/// when a GPU is added or removed; `inventory::HostDevice::key` converts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// The GPU.
    pub gpu: GpuIndex,
    /// The MIG device on it; `None` for the whole GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<MigIndex>,
}

impl Device {
    /// A whole GPU.
    pub fn whole(gpu: GpuIndex) -> Self {
        Self { gpu, mig: None }
    }

    /// The device's name in CDI: `0`, `0:1`.
    pub fn cdi_name(&self) -> String {
        match self.mig {
            None => self.gpu.to_string(),
            Some(mig) => format!("{}:{mig}", self.gpu),
        }
    }
}

impl fmt::Display for Device {
    /// `gpu 0`, `gpu 0:1`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("gpu {}", self.cdi_name()))
    }
}

/// A device as a person names it, before it is known whether it exists. `inventory::Catalogue::find` finds it.
///
/// The same forms are accepted wherever a person chooses a device. NVIDIA's generator accepts indices and UUIDs;
/// `nvidia-smi -i` also accepts PCI addresses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceSelector {
    /// By NVML's indices: `0`, `0:1`.
    Index(Device),
    /// A GPU by UUID: `GPU-8188460b-…`.
    GpuUuid(GpuUuid),
    /// A MIG device by UUID: `MIG-6f1d3c2a-…`, or `MIG-GPU-8188460b-…/7/0`, the form of drivers before 470.
    MigUuid(MigUuid),
    /// A GPU by PCI address: `0000:41:00.0`. The domain is required: `10:00.3`, as lspci writes it, could also mean
    /// share 3 of MIG device 0 of GPU 10.
    Pci(PciAddress),
    /// A GPU by the minor number of its node, written as the node's path (`/dev/nvidia0`), because a plain number is an
    /// index.
    Minor(Minor),
}

/// What the path of a GPU's node begins with; its minor number follows.
const NODE: &str = "/dev/nvidia";

impl FromStr for DeviceSelector {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parsed = if let Some(minor) = text.strip_prefix(NODE) {
            minor.parse().map(Self::Minor)
        } else if text.starts_with("GPU-") {
            text.parse().map(Self::GpuUuid)
        } else if text.starts_with("MIG-") {
            text.parse().map(Self::MigUuid)
        } else if text.contains('.') {
            text.parse().map(Self::Pci)
        } else if let Some((gpu, mig)) = text.split_once(':') {
            gpu.parse().and_then(|gpu| {
                let mig = Some(mig.parse()?);
                Ok(Self::Index(Device { gpu, mig }))
            })
        } else {
            text.parse().map(|gpu| Self::Index(Device::whole(gpu)))
        };
        parsed.map_err(|_| {
            Error::usage(format!("\"{text}\""), "not a valid device")
                .hint("expected 0, 0:1, GPU-…, MIG-…, 0000:41:00.0 or /dev/nvidia0")
        })
    }
}

impl fmt::Display for DeviceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(device) => f.write_str(&device.cdi_name()),
            Self::GpuUuid(uuid) => write!(f, "{uuid}"),
            Self::MigUuid(uuid) => write!(f, "{uuid}"),
            Self::Pci(address) => write!(f, "{address}"),
            Self::Minor(minor) => write!(f, "{NODE}{minor}"),
        }
    }
}

super::serde_as_text!(DeviceSelector);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_is_written_as_it_is_read() {
        for good in [
            "0",
            "17",
            "0:1",
            "GPU-8188460b-0e3a-4d7e-9d3a-0123456789ab",
            "MIG-8188460b-0e3a-4d7e-9d3a-0123456789ab",
            "MIG-GPU-8188460b-0e3a-4d7e-9d3a-0123456789ab/7/0",
            "0000:41:00.0",
            "/dev/nvidia3",
        ] {
            assert_eq!(good.parse::<DeviceSelector>().unwrap().to_string(), good);
        }
        for bad in [
            "",
            "all",
            "-1",
            "0:",
            ":1",
            "0:1:2",
            "GPU-x",
            "0.1",
            "0:1.3",
            "41:00.0",
            "/dev/nvidia",
            "/dev/nvidiactl",
            "/dev/nvidia-1",
            "minor:0",
        ] {
            assert!(bad.parse::<DeviceSelector>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_index_a_minor_and_an_address_are_told_apart() {
        let parse = |text: &str| text.parse::<DeviceSelector>().unwrap();
        assert_eq!(parse("3"), DeviceSelector::Index(Device::whole(GpuIndex(3))));
        assert_eq!(parse("/dev/nvidia3"), DeviceSelector::Minor(Minor(3)));
        // NVML writes eight digits of domain and capital letters.
        assert_eq!(parse("00000000:C1:00.0"), parse("0000:c1:00.0"));
    }
}
