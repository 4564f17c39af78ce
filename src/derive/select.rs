//! Which devices, and what they are called.

use super::{DeviceId, NameStrategy, Options};
use crate::error::{Error, Result};
use crate::inventory::{Gpu, Inventory, MigDevice, Warning, find};
use crate::types::DeviceName;

/// Something that CUDA runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Device<'a> {
    Gpu(&'a Gpu),
    Mig(&'a Gpu, &'a MigDevice),
}

impl<'a> Device<'a> {
    /// The GPU that it is, or is a part of.
    pub(super) fn gpu(self) -> &'a Gpu {
        match self {
            Device::Gpu(gpu) | Device::Mig(gpu, _) => gpu,
        }
    }
}

impl std::fmt::Display for Device<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Device::Gpu(gpu) => f.write_str(&gpu.label()),
            Device::Mig(gpu, mig) => write!(f, "{}:{}", gpu.label(), mig.index),
        }
    }
}

/// All devices, by index; a GPU in MIG mode by its instances, since nothing runs on the whole of it.
pub(super) fn all<'a>(gpus: &[&'a Gpu]) -> Vec<Device<'a>> {
    let mut found = Vec::new();
    for gpu in gpus {
        if !gpu.is_in_mig_mode() {
            found.push(Device::Gpu(gpu));
        }
        found.extend(mig_devices(gpu).into_iter().map(|mig| Device::Mig(gpu, mig)));
    }
    found
}

/// The GPUs of `inventory`, by index, whatever their order there.
pub(super) fn gpus(inventory: &Inventory) -> Vec<&Gpu> {
    let mut gpus: Vec<&Gpu> = inventory.gpus.iter().collect();
    gpus.sort_by(|a, b| (a.index, a.pci, &a.uuid).cmp(&(b.index, b.pci, &b.uuid)));
    gpus
}

fn mig_devices(gpu: &Gpu) -> Vec<&MigDevice> {
    let mut migs: Vec<&MigDevice> = gpu.mig_devices.iter().collect();
    migs.sort_by_key(|m| (m.index, m.gpu_instance, m.compute_instance));
    migs
}

/// The devices that `ids` name, in their order, each once.
///
/// # Errors
/// An id that no device has; the error lists those that there are.
pub(super) fn named<'a>(gpus: &[&'a Gpu], ids: &[DeviceId]) -> Result<Vec<Device<'a>>> {
    let mut found: Vec<Device<'a>> = Vec::new();
    for id in ids {
        let some = match id {
            DeviceId::All => all(gpus),
            DeviceId::None => Vec::new(),
            other => vec![one(gpus, other).ok_or_else(|| unknown(gpus, other))?],
        };
        for device in some {
            if !found.contains(&device) {
                found.push(device);
            }
        }
    }
    Ok(found)
}

fn one<'a>(gpus: &[&'a Gpu], id: &DeviceId) -> Option<Device<'a>> {
    // A GPU that is named is given even in MIG mode: who names it wants to change its instances.
    match id {
        DeviceId::Device(id) => find(gpus.iter().copied(), id).map(|(gpu, mig)| match mig {
            None => Device::Gpu(gpu),
            Some(mig) => Device::Mig(gpu, mig),
        }),
        DeviceId::All | DeviceId::None | DeviceId::Channel(_) => None,
    }
}

fn unknown(gpus: &[&Gpu], id: &DeviceId) -> Error {
    let mut there: Vec<String> = Vec::new();
    for gpu in gpus {
        match gpu.index_is_known {
            true => there.push(format!("{} ({})", gpu.index, gpu.uuid)),
            false => there.push(gpu.uuid.to_string()),
        }
        for mig in mig_devices(gpu) {
            let uuid = mig.uuid.as_ref().map_or(String::new(), |u| format!(" ({u})"));
            there.push(format!("{}:{}{uuid}", gpu.index, mig.index));
        }
    }
    let there = if there.is_empty() {
        "none".to_owned()
    } else {
        crate::text::some(&there)
    };
    Error::usage(format!("device \"{id}\""), "is not there").hint(format!("there are {there}"))
}

/// The name of `device` under `strategy`; `None`, with a warning, where it cannot have one.
pub(super) fn name(device: Device<'_>, strategy: NameStrategy, warnings: &mut Vec<Warning>) -> Option<DeviceName> {
    let by_index = strategy != NameStrategy::Uuid;
    // The inventory has said so: a name must not mean another GPU once NVML answers again.
    if by_index && !device.gpu().index_is_known {
        return None;
    }
    let text = match (device, strategy) {
        (Device::Gpu(gpu), NameStrategy::Index) => gpu.index.to_string(),
        (Device::Gpu(gpu), NameStrategy::TypeIndex) => format!("gpu{}", gpu.index),
        (Device::Gpu(gpu), NameStrategy::Uuid) => gpu.uuid.to_string(),
        (Device::Mig(gpu, mig), NameStrategy::Index) => format!("{}:{}", gpu.index, mig.index),
        (Device::Mig(gpu, mig), NameStrategy::TypeIndex) => format!("mig{}:{}", gpu.index, mig.index),
        // Unknown without NVML: nothing to say, the inventory has said so.
        (Device::Mig(_, mig), NameStrategy::Uuid) => mig.uuid.as_ref()?.to_string(),
    };
    match text.parse() {
        Ok(name) => Some(name),
        Err(_) => {
            warnings.push(Warning {
                object: device.to_string(),
                text: format!("its name {text} is none that CDI allows; it is there under its other names"),
            });
            None
        }
    }
}

/// Whether `options` asks for the device `none`.
pub(super) fn wants_none(options: &Options) -> bool {
    options.devices.is_empty() || options.devices.contains(&DeviceId::None)
}

/// Whether `options` asks for the device `all`.
pub(super) fn wants_all(options: &Options) -> bool {
    options.all_device && !options.devices.contains(&DeviceId::None)
}
