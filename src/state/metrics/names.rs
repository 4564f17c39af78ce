//! The names of others for the same things, so that dashboards and queries that exist join with these metrics.
//!
//! - `otel`: OpenTelemetry's semantic conventions for GPUs, which are in development
//!   (opentelemetry.io/docs/specs/semconv/hardware/gpu), as Prometheus writes them: `hw.gpu.memory.usage` in `By`
//!   becomes `hw_gpu_memory_usage_bytes` (OpenTelemetry, "Prometheus and OpenMetrics Compatibility").
//! - `dcgm`: the fields of dcgm-exporter (etc/default-counters.csv) and its labels (internal/pkg/rendermetrics).
//!
//! A family that they have no name for keeps its own, and gets the labels that identify the device.

use super::catalogue::{BUSY, CLAIM, Family, MEMORY, MEMORY_BUSY, MEMORY_USED};
use crate::held::names::DeviceNames;
use std::collections::BTreeMap;
use tranche_core::types::{DeviceKey, PciAddress};
use tranche_plan::inventory::{Catalogue, HostDevice, Inventory};

tranche_core::types::words! {
    /// Whose names are written.
    pub enum Names: "kind of names" {
        /// Those of this program.
        Tranche = "tranche",
        /// Those of OpenTelemetry.
        Otel = "otel",
        /// Those of dcgm-exporter.
        Dcgm = "dcgm",
    }
}

/// What identifies a device for other programs. What is not known is left out of its labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its key in the ledger.
    pub key: DeviceKey,
    /// The index of the GPU.
    pub index: Option<String>,
    /// The address of the GPU.
    pub pci: Option<PciAddress>,
    /// The product name of the GPU.
    pub model: Option<String>,
    /// The profile of a MIG device: `1g.5gb`.
    pub profile: Option<String>,
}

impl Identity {
    fn of(device: HostDevice<'_>) -> Self {
        let HostDevice { gpu, mig } = device;
        Self {
            key: device.key(),
            index: gpu.index_is_known.then(|| gpu.index.to_string()),
            pci: Some(gpu.pci),
            model: Some(gpu.name.clone()),
            profile: mig.and_then(|mig| mig.profile.as_ref()).map(ToString::to_string),
        }
    }
}

/// Whose names are written, and the devices, by the value of the label `device`.
#[derive(Debug, Clone)]
pub struct Naming {
    names: Names,
    devices: BTreeMap<String, Identity>,
}

/// A label with its value.
pub(super) type Label = (&'static str, String);

/// The container of a claim, by the values of the labels `device` and `shares`: its id and its name.
pub(super) type Containers<'s> = BTreeMap<(&'s str, &'s str), (&'s str, &'s str)>;

/// A family as others have it.
pub(super) struct Known {
    family: Family,
    pub(super) name: &'static str,
    /// What a value is multiplied with.
    pub(super) factor: f64,
    pub(super) help: &'static str,
}

const MIB: f64 = 1_048_576.0;

const OTEL: &[Known] = &[
    Known {
        family: MEMORY,
        name: "hw_gpu_memory_limit_bytes",
        factor: 1.0,
        help: "Size of the GPU memory.",
    },
    Known {
        family: MEMORY_USED,
        name: "hw_gpu_memory_usage_bytes",
        factor: 1.0,
        help: "GPU memory used.",
    },
    Known {
        family: BUSY,
        name: "hw_gpu_utilization_ratio",
        factor: 1.0,
        help: "Fraction of time spent in a specific task.",
    },
];

/// Memory that is free is missing: there, it is without what the driver keeps for itself.
const DCGM: &[Known] = &[
    Known {
        family: MEMORY,
        name: "DCGM_FI_DEV_FB_TOTAL",
        factor: 1.0 / MIB,
        help: "Total framebuffer memory (in MiB).",
    },
    Known {
        family: MEMORY_USED,
        name: "DCGM_FI_DEV_FB_USED",
        factor: 1.0 / MIB,
        help: "Framebuffer memory used (in MiB).",
    },
    Known {
        family: BUSY,
        name: "DCGM_FI_DEV_GPU_UTIL",
        factor: 100.0,
        help: "GPU utilization (in %).",
    },
    Known {
        family: MEMORY_BUSY,
        name: "DCGM_FI_DEV_MEM_COPY_UTIL",
        factor: 100.0,
        help: "Memory utilization (in %).",
    },
];

impl Naming {
    /// The names of this program.
    pub const OWN: Self = Self {
        names: Names::Tranche,
        devices: BTreeMap::new(),
    };

    /// These names for these devices, by the value of the label `device`.
    pub fn new(names: Names, devices: BTreeMap<String, Identity>) -> Self {
        Self { names, devices }
    }

    /// These names for the devices of the last refresh.
    pub fn of_host(names: Names, host: &DeviceNames) -> Self {
        let catalogue = host.inventory().map(Inventory::catalogue);
        let devices = catalogue.iter().flat_map(Catalogue::all);
        let identity = |device: HostDevice<'_>| (host.device(&device.key()), Identity::of(device));
        Self::new(names, devices.map(identity).collect())
    }

    /// As others have `family`; `None` if it keeps its name.
    pub(super) fn known(&self, family: &Family) -> Option<&'static Known> {
        let known = match self.names {
            Names::Tranche => &[],
            Names::Otel => OTEL,
            Names::Dcgm => DCGM,
        };
        known.iter().find(|known| known.family == *family)
    }

    /// The labels of a sample of `family` with these `values`.
    pub(super) fn labels(&self, family: &Family, values: &[String], containers: &Containers<'_>) -> Vec<Label> {
        let pairs = family.labels.iter().copied().zip(values.iter().cloned());
        if self.names == Names::Tranche {
            return pairs.collect();
        }
        let value = |label: &str| {
            let at = family.labels.iter().position(|own| *own == label);
            at.and_then(|at| values.get(at)).map(String::as_str)
        };
        let device = value("device").unwrap_or_default();
        let identity = self.devices.get(device);
        if self.known(family).is_some() {
            return match (identity, self.names) {
                (Some(identity), Names::Dcgm) => dcgm(identity, true),
                (Some(identity), _) => otel(identity, device),
                // A device that is not known has its name alone.
                (None, Names::Dcgm) => vec![("device", device.to_owned())],
                (None, _) => vec![("hw_id", device.to_owned()), ("hw_type", "gpu".to_owned())],
            };
        }
        let mut labels: Vec<Label> = pairs.map(|(label, value)| (self.label(label), value)).collect();
        labels.extend(identity.into_iter().flat_map(|identity| match self.names {
            Names::Dcgm => dcgm(identity, false),
            _ => vec![("hw_id", identity.key.to_string())],
        }));
        let container = value("shares").and_then(|shares| containers.get(&(device, shares)));
        if let Some((id, name)) = container.filter(|_| *family != CLAIM) {
            let named = [("container", *id), ("container_name", *name)];
            labels.extend(named.map(|(label, value)| (self.label(label), value.to_owned())));
        }
        labels
    }

    /// The label of others for one of a claim's container: that of its name is `container` for dcgm-exporter, and
    /// `container.id` and `container.name` are OpenTelemetry's.
    fn label(&self, own: &'static str) -> &'static str {
        match (self.names, own) {
            (Names::Otel | Names::Dcgm, "container") => "container_id",
            (Names::Dcgm, "container_name") => "container",
            _ => own,
        }
    }
}

fn otel(identity: &Identity, device: &str) -> Vec<Label> {
    let mut labels = vec![
        ("hw_id", identity.key.to_string()),
        ("hw_name", device.to_owned()),
        ("hw_type", "gpu".to_owned()),
        ("hw_vendor", "NVIDIA".to_owned()),
    ];
    labels.extend(identity.model.clone().map(|model| ("hw_model", model)));
    if !identity.key.is_whole() {
        labels.push(("hw_parent", identity.key.gpu().to_string()));
    }
    labels
}

/// With `has_own_name`, a family of dcgm-exporter, whose label `device` has the name of the node.
fn dcgm(identity: &Identity, has_own_name: bool) -> Vec<Label> {
    let mut labels = Vec::new();
    labels.extend(identity.index.clone().map(|index| ("gpu", index)));
    labels.push(("UUID", identity.key.gpu().to_string()));
    // As NVML writes it (nvmlPciInfo_t, busId): eight digits of the domain.
    let bus_id = |pci: &PciAddress| {
        let PciAddress {
            domain,
            bus,
            device,
            function,
        } = pci;
        format!("{domain:08X}:{bus:02X}:{device:02X}.{function}")
    };
    labels.extend(identity.pci.as_ref().map(|pci| ("pci_bus_id", bus_id(pci))));
    if let Some(index) = identity.index.as_ref().filter(|_| has_own_name) {
        labels.push(("device", format!("nvidia{index}")));
    }
    labels.extend(identity.model.clone().map(|model| ("modelName", model)));
    if let Some((gpu_instance, _)) = identity.key.instance() {
        labels.extend(identity.profile.clone().map(|profile| ("GPU_I_PROFILE", profile)));
        labels.push(("GPU_I_ID", gpu_instance.to_string()));
    }
    labels
}

#[cfg(test)]
mod tests;
