//! From what a host has to what is done to a container: pure, so that equal hosts give equal bytes.
//!
//! [`derive()`] gives a [`Derived`]: edits that every container of the kind gets ([`Derived::common`]: control nodes, the
//! driver's files, one hook) and edits of each device. [`crate::cdi`] makes a specification of it.

mod coherence;
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

pub use device::{gpu_edits, mig_edits};
pub use hook::{HookOptions, HookPart};
pub use mode::Mode;
pub use options::{DeviceId, NameStrategy, Options, capabilities_from_text};
pub use share::{Sharing, claim};

use crate::edits::Edits;
use crate::error::{Error, Result};
use crate::inventory::{Inventory, PlatformKind, Warning};
use crate::types::{CdiKind, DeviceName};
use std::collections::{BTreeMap, BTreeSet};

/// What a specification is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derived {
    /// Vendor and class.
    pub kind: CdiKind,
    /// What an engine does once, whichever of the devices it gives.
    pub common: Edits,
    /// The devices, in the order in which a specification lists them. Names are unique.
    pub devices: Vec<DerivedDevice>,
    /// Devices that are offered under another kind (shares that the policy renames, GPUs by their coherence): a
    /// specification has one kind, so each needs one of its own.
    pub renamed: BTreeMap<CdiKind, Vec<DerivedDevice>>,
    /// What could not be had, a line each.
    pub warnings: Vec<Warning>,
}

impl Derived {
    /// One of a kind each: what is under the mode's own kind first, then the shares that have another.
    pub fn by_kind(mut self) -> Vec<Derived> {
        let renamed = std::mem::take(&mut self.renamed);
        let common = self.common.clone();
        let mut all = vec![self];
        all.extend(renamed.into_iter().map(|(kind, devices)| Derived {
            kind,
            common: common.clone(),
            devices,
            renamed: BTreeMap::new(),
            warnings: Vec::new(),
        }));
        all.retain(|d| !d.devices.is_empty());
        all
    }
}

/// One device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivedDevice {
    /// Its name within the kind.
    pub name: DeviceName,
    /// What it does to a container besides [`Derived::common`]. Never empty: CDI refuses a device without edits.
    pub edits: Edits,
}

impl DerivedDevice {
    /// A device of that name.
    ///
    /// # Errors
    /// A name that CDI does not allow.
    fn named(name: &str, edits: Edits) -> Result<Self> {
        let name = name.parse()?;
        Ok(DerivedDevice { name, edits })
    }
}

/// Works out what `inventory` can give to containers.
///
/// # Errors
/// [`crate::error::Kind::Nothing`] where the host has nothing of the kind; a usage error for a mode that does not exist yet, an unknown
/// device id, or a vendor and class that CDI does not allow.
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
    let mut derived = Derived {
        kind,
        common: Edits::default(),
        devices: Vec::new(),
        renamed: BTreeMap::new(),
        warnings: Vec::new(),
    };
    // Where NVIDIA's own runtime stands below the engine, this keeps it from adding every GPU by the image's wish.
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

/// Gives each device the hook that opens the directories of its nodes, where that hook was asked for.
fn open_directories(hook: &HookOptions, derived: &mut Derived) {
    let renamed = derived.renamed.values_mut().flatten();
    for device in derived.devices.iter_mut().chain(renamed) {
        let chmod = hook::chmod(hook, device.edits.nodes.keys());
        device.edits.hooks.extend(chmod);
    }
}

/// Takes out of each device what all of them get anyway, and a second device of the same name.
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
            warnings.push(Warning {
                object: format!("device {}", device.name),
                text: "there are two of this name; the first is kept".into(),
            });
        }
        new && !device.edits.is_empty()
    });
}

#[cfg(test)]
mod tests;
