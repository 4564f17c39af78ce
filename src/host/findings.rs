//! What discovery notes for people while it looks.

use std::cell::RefCell;
use std::fmt::Display;
use tranche_plan::inventory::{Absent, Degraded, Inventory, Warning, WarningKind};

/// Collects what goes wrong and what is not found. Every part of a discovery adds to it, and nobody reads it before the
/// end, so it is shared and not passed on.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    warnings: RefCell<Vec<Warning>>,
    absent: RefCell<Vec<Absent>>,
    degraded: RefCell<Vec<Degraded>>,
}

impl Findings {
    /// Notes something that went wrong. The same warning is noted once: several parts may look at one device node.
    pub(crate) fn warn(&self, object: impl Display, text: impl Display) {
        self.warn_of(WarningKind::Other, object, text);
    }

    /// As [`Findings::warn`], for a warning of one of the kinds that programs must know.
    pub(crate) fn warn_of(&self, kind: WarningKind, object: impl Display, text: impl Display) {
        let warning = Warning {
            object: object.to_string(),
            text: text.to_string(),
            kind,
        };
        let mut warnings = self.warnings.borrow_mut();
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    /// Notes something that the host has and the inventory lacks.
    pub(crate) fn degrade(&self, degraded: Degraded) {
        let mut all = self.degraded.borrow_mut();
        if !all.contains(&degraded) {
            all.push(degraded);
        }
    }

    /// Notes a device that exists and cannot be given to a container.
    pub(crate) fn degrade_device(&self, device: impl Display, why: impl Display) {
        self.degrade(Degraded::Device {
            device: device.to_string(),
            why: why.to_string(),
        });
    }

    /// Notes something that was not found. Names that were looked for in the same places share one entry.
    pub(crate) fn absent<P: Display>(&self, what: impl Display, looked_in: impl IntoIterator<Item = P>) {
        let what = what.to_string();
        let looked_in: Vec<String> = looked_in.into_iter().map(|place| place.to_string()).collect();
        let mut all = self.absent.borrow_mut();
        match all.iter_mut().find(|absent| absent.looked_in == looked_in) {
            Some(absent) => absent.what.push(what),
            None => all.push(Absent {
                what: vec![what],
                looked_in,
            }),
        }
    }

    /// Parses a string of NVML's. Notes a warning if it is invalid.
    pub(crate) fn parsed<T: std::str::FromStr>(&self, object: &str, what: &str, text: Option<&str>) -> Option<T> {
        let text = text?;
        let value = text.parse().ok();
        if value.is_none() {
            self.warn(
                object,
                format!("NVML reports {text:?} as its {what}, which is not valid"),
            );
        }
        value
    }

    /// The texts of the warnings.
    #[cfg(test)]
    pub(crate) fn texts(&self) -> Vec<String> {
        self.warnings.borrow().iter().map(|w| w.text.clone()).collect()
    }

    /// What went wrong.
    pub(crate) fn into_warnings(self) -> Vec<Warning> {
        self.warnings.into_inner()
    }

    /// Moves everything into the inventory.
    pub(crate) fn store(self, inventory: &mut Inventory) {
        inventory.warnings = self.warnings.into_inner();
        inventory.absent = self.absent.into_inner();
        inventory.degraded = self.degraded.into_inner();
    }
}
