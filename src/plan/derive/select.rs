//! Which devices a specification has, and what they are called.

use super::{DeviceChoice, NameStrategy, Options};
use crate::inventory::{
    Catalogue, Degraded, Driver, DriverCapability, HostDevice, Inventory, LIBCUDA, PlatformKind, Warning,
};
use std::collections::BTreeSet;
use tranche_core::error::Result;
use tranche_core::types::{DeviceName, DeviceSelector};

/// The devices that `choices` name, in their order, each once.
///
/// # Errors
/// Returns an error if a choice names a device that the host does not have; the error lists those that it has.
pub(super) fn chosen<'a>(catalogue: &Catalogue<'a>, choices: &[DeviceChoice]) -> Result<Vec<HostDevice<'a>>> {
    let mut found: Vec<HostDevice<'a>> = Vec::new();
    for choice in choices {
        let some = match choice {
            DeviceChoice::All => catalogue.usable().collect(),
            DeviceChoice::None => Vec::new(),
            // A GPU in MIG mode is offered if it is named: a container may be meant to change its instances.
            DeviceChoice::Device(selector) => vec![catalogue.get(selector)?],
            DeviceChoice::Channel(_) => return Err(choice.error("is an IMEX channel, expected a GPU or MIG device")),
        };
        for device in some {
            if !found.contains(&device) {
                found.push(device);
            }
        }
    }
    Ok(found)
}

/// What keeps `inventory` from being complete for a specification of `choices` for containers with `capabilities`. A
/// device that is lost does not matter to a specification of others; a file of the driver is missing from every device.
pub fn missing_from(
    inventory: &Inventory,
    choices: &[DeviceChoice],
    capabilities: &BTreeSet<DriverCapability>,
) -> Vec<Degraded> {
    let is_for_all = choices.is_empty() || choices.contains(&DeviceChoice::All);
    let computes = capabilities.contains(&DriverCapability::Compute);
    let catalogue = inventory.catalogue();
    let is_missing = |degraded: &&Degraded| match degraded {
        Degraded::Device { device, .. } => is_for_all || choices.iter().any(|one| concerns(device, one, &catalogue)),
        // libcuda, which who only draws does not need.
        Degraded::Library { .. } => computes,
        Degraded::Nvml { .. }
        | Degraded::NoLibraries { .. }
        | Degraded::Lost { .. }
        | Degraded::ControlNode { .. }
        | Degraded::NoGpu { .. } => true,
    };
    let mut missing: Vec<Degraded> = inventory.degraded.iter().filter(is_missing).cloned().collect();
    // A machine that only draws is complete, unless somebody asks for more by name.
    let asks = computes && capabilities.len() < DriverCapability::ALL.len();
    let lacks_libcuda = |driver: &Driver| driver.library(LIBCUDA).is_none();
    let libcuda = Degraded::Library {
        soname: LIBCUDA.to_owned(),
    };
    let is_linux = inventory.platform.kind == PlatformKind::Linux;
    if asks && is_linux && inventory.driver.as_ref().is_some_and(lacks_libcuda) && !missing.contains(&libcuda) {
        missing.push(libcuda);
    }
    missing
}

/// Whether a specification of `choice` lacks something because the device called `label` (`gpu 2`, `gpu 0:1`,
/// `gpu 0000:41:00.0`) is not complete. A GPU and its MIG devices concern each other.
fn concerns(label: &str, choice: &DeviceChoice, catalogue: &Catalogue<'_>) -> bool {
    let DeviceChoice::Device(chosen) = choice else {
        return false;
    };
    // A choice that is not found is refused, whatever is missing.
    let (Some(found), Ok(lost)) = (
        catalogue.find(chosen),
        label.strip_prefix("gpu ").unwrap_or(label).parse(),
    ) else {
        return true;
    };
    match lost {
        DeviceSelector::Index(lost) => {
            let own = found.device();
            own.gpu == lost.gpu && (own.mig == lost.mig || own.mig.is_none() || lost.mig.is_none())
        }
        // While a GPU is not counted, the indices of others may be different ones.
        lost => {
            let lost = catalogue.find(&lost);
            matches!(chosen, DeviceSelector::Index(_)) || lost.is_some_and(|lost| lost.key().overlaps(&found.key()))
        }
    }
}

/// The name of `device` under `strategy`; `None` if it has none. A warning is added where no other warning says why.
pub(super) fn name(device: HostDevice<'_>, strategy: NameStrategy, warnings: &mut Vec<Warning>) -> Option<DeviceName> {
    let prefix = if device.mig.is_some() { "mig" } else { "gpu" };
    let text = match strategy {
        // Discovery has warned: a name must not mean another GPU once NVML answers again.
        NameStrategy::Index | NameStrategy::TypeIndex if !device.gpu.index_is_known => return None,
        NameStrategy::Index => device.device().cdi_name(),
        NameStrategy::TypeIndex => format!("{prefix}{}", device.device().cdi_name()),
        // Discovery has warned: without NVML, the UUIDs of MIG devices are unknown.
        NameStrategy::Uuid => device.uuid()?,
    };
    let name = text.parse();
    if name.is_err() {
        let text = format!("\"{text}\" is not a valid CDI device name; the device is available under its other names");
        warnings.push(Warning::new(device, text));
    }
    name.ok()
}

/// Whether `options` asks for the device `none`.
pub(super) fn wants_none(options: &Options) -> bool {
    options.devices.is_empty() || options.devices.contains(&DeviceChoice::None)
}

/// Whether `options` asks for the device `all`.
pub(super) fn wants_all(options: &Options) -> bool {
    options.all_device && !options.devices.contains(&DeviceChoice::None)
}
