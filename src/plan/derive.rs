//! Works out from an inventory what is done to a container. It is pure, so that equal hosts give equal bytes.
//!
//! [`derive()`] gives a [`Derived`]: edits that every container of the kind gets ([`Derived::common`]: control nodes,
//! the driver's files, one hook) and edits of each device. [`crate::cdi`] makes a specification of it.

mod claim;
mod coherence;
mod container;
mod device;
mod files;
mod gated;
mod gpu;
mod hook;
mod mode;
mod node;
mod options;
mod select;
mod share;

pub use claim::{ClaimDevice, RESOURCE_CLAIM_FILE, WatchedDevice, claim, resource_claim};
pub use container::{ContainerError, ReservedShares, container};
pub use gated::mig_access;
pub use hook::HookOptions;
pub use mode::Mode;
pub use options::{DeviceChoice, NameStrategy, Options, capabilities_from_text};
pub use select::missing_from;
pub use share::{Sharing, claimed_since_held};

use crate::edits::{Derived, DerivedDevice};
use crate::inventory::{Inventory, PlatformKind, Warning};
use std::collections::BTreeSet;
use tranche_core::error::{Error, Result};
use tranche_core::types::CdiKind;

/// Works out what `inventory` can give to containers.
///
/// # Errors
/// Returns [`tranche_core::error::Kind::Nothing`] if the host has no device for the mode, and a usage error for a mode
/// that is not supported, an unknown device, or a vendor or class that is not valid in CDI.
pub fn derive(inventory: &Inventory, options: &Options) -> Result<Derived> {
    let mode = match options.mode {
        Mode::Auto => match inventory.platform.kind {
            PlatformKind::Linux => Mode::Nvml,
            PlatformKind::Wsl => Mode::Wsl,
            PlatformKind::Tegra => Mode::Csv,
        },
        mode => mode,
    };
    let (vendor, class) = mode.kind();
    let kind = CdiKind::new(
        options.vendor.as_deref().unwrap_or(vendor),
        options.class.as_deref().unwrap_or(class),
    )?;
    let mut derived = Derived::new(kind);
    // If the engine uses NVIDIA's runtime, this keeps that runtime from adding every GPU that the image asks for.
    derived
        .common
        .env
        .insert("NVIDIA_VISIBLE_DEVICES".into(), "void".into());
    match mode {
        Mode::Nvml | Mode::Auto => gpu::derive(inventory, options, &mut derived)?,
        Mode::Management => gated::management(inventory, options, &mut derived)?,
        Mode::Imex => gated::imex(inventory, options, &mut derived)?,
        Mode::Gds | Mode::Mofed | Mode::Gdrcopy | Mode::Nvswitch => {
            gated::single(mode, inventory, options, &mut derived)?;
        }
        Mode::Csv | Mode::Wsl => {
            let platform = if mode == Mode::Csv { "Tegra" } else { "WSL" };
            return Err(Error::usage(
                format!("mode {mode}"),
                format!("{platform} is not supported yet: it comes in a later version"),
            ));
        }
    }
    if let Some(hook) = &options.hook {
        open_directories(hook, &mut derived);
    }
    settle(&mut derived);
    Ok(derived)
}

/// Adds the hook that opens the directories of a device's nodes to each device, if that hook is enabled.
fn open_directories(hook: &HookOptions, derived: &mut Derived) {
    let renamed = derived.renamed.values_mut().flatten();
    for device in derived.devices.iter_mut().chain(renamed) {
        let chmod = hook::chmod(hook, device.edits.nodes.keys());
        device.edits.hooks.extend(chmod);
    }
}

/// Removes from each device what all of them have in common, and removes every second device of the same name.
fn settle(derived: &mut Derived) {
    let mut seen = BTreeSet::new();
    let common = &derived.common;
    let warnings = &mut derived.warnings;
    derived.devices.retain_mut(|device| {
        let whole = device.edits.clone();
        device.edits.remove(common);
        if device.edits.is_empty() {
            device.edits = whole;
        }
        let new = seen.insert(device.name.clone());
        if !new {
            let text = "two devices have this name; the first one is kept";
            warnings.push(Warning::new(format_args!("device {}", device.name), text));
        }
        new && !device.edits.is_empty()
    });
}

#[cfg(test)]
mod tests;
