//! The devices that a host offers under one or more CDI kinds, each with its edits.

use super::Edits;
use crate::inventory::Warning;
use std::collections::BTreeMap;
use std::fmt;
use tranche_core::error::Result;
use tranche_core::types::{CdiKind, DeviceName};

/// The content of one or more CDI specifications, before any format or version of CDI is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derived {
    /// Vendor and class.
    pub kind: CdiKind,
    /// The edits that every container with at least one of the devices gets once.
    pub common: Edits,
    /// The devices in the order in which a specification lists them. Names are unique.
    pub devices: Vec<DerivedDevice>,
    /// Devices that are offered under another kind: shares that the policy renames, and GPUs by the coherence of their
    /// memory. A specification has one kind, so each kind here becomes a specification of its own.
    pub renamed: BTreeMap<CdiKind, Vec<DerivedDevice>>,
    /// What was left out or chosen on the way, for the person who asked.
    pub warnings: Vec<Warning>,
}

impl Derived {
    /// No devices of `kind` yet.
    pub fn new(kind: CdiKind) -> Self {
        Self {
            kind,
            common: Edits::default(),
            devices: Vec::new(),
            renamed: BTreeMap::new(),
            warnings: Vec::new(),
        }
    }

    /// Adds a device under `kind`.
    pub fn add(&mut self, kind: CdiKind, device: DerivedDevice) {
        match kind == self.kind {
            true => self.devices.push(device),
            false => self.renamed.entry(kind).or_default().push(device),
        }
    }

    /// Adds a warning about `object`.
    pub fn warn(&mut self, object: impl fmt::Display, text: &str) {
        self.warnings.push(Warning::new(object, text));
    }

    /// One value for each kind that has devices: first `self.kind`, then those of `self.renamed` in the order of their
    /// names. Each has the common edits; the warnings stay with the first.
    pub fn by_kind(mut self) -> Vec<Derived> {
        let renamed = std::mem::take(&mut self.renamed);
        let common = self.common.clone();
        let mut all = vec![self];
        all.extend(renamed.into_iter().map(|(kind, devices)| Derived {
            common: common.clone(),
            devices,
            ..Self::new(kind)
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
    /// A device with the name `name`.
    ///
    /// # Errors
    /// Returns an error if CDI does not allow the name.
    pub fn named(name: &str, edits: Edits) -> Result<Self> {
        let name = name.parse()?;
        Ok(DerivedDevice { name, edits })
    }
}
