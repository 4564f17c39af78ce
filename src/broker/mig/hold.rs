//! Keeps containers off devices that are about to be destroyed, or measured.
//!
//! The program holds them in the ledger as a program holds a share: a start that asks for one of them waits or is
//! refused, with the name of this program, and a process that is killed holds nothing any more.

use tranche_core::claims::{ClaimEntry, Claims, explain};
use tranche_core::error::Result;
use tranche_core::ledger::{Books, Bounds, Claim, Holder, start_name};
use tranche_core::types::{DeviceKey, Subject};

/// The name of the program that changes instances, in `tranche status` and in refusals.
pub(super) const PROGRAM: &str = "tranche mig";

/// Devices that are held until it is dropped.
#[derive(Debug)]
pub struct DevicesHeld<'a> {
    /// The name of the program that holds them, in `tranche status` and in refusals.
    program: &'static str,
    claims: &'a Claims,
    holder: Holder,
    devices: Vec<DeviceKey>,
}

impl<'a> DevicesHeld<'a> {
    /// Holds `devices` for `program`, each as a whole.
    ///
    /// # Errors
    /// Returns who holds one of them. None is held then.
    pub fn take(
        claims: &'a Claims,
        program: &'static str,
        devices: impl IntoIterator<Item = DeviceKey>,
    ) -> Result<Self> {
        let mut held = Self {
            program,
            claims,
            holder: Holder::Process {
                program: program.to_owned(),
                id: start_name()?,
            },
            devices: Vec::new(),
        };
        for device in devices {
            let entry = ClaimEntry {
                device: device.clone(),
                subject: Subject::WHOLE,
                replicas: 0,
                bounds: Bounds::default(),
                asked_as: None,
                alone: true,
            };
            let entered = claims.enter(&entry, held.holder.clone(), Some(std::process::id()));
            entered.map_err(|refused| explain(&device, refused.error))?;
            held.devices.push(device);
        }
        Ok(held)
    }

    /// Holds them until [`DevicesHeld::release_left`] or the end of this process: they do not exist any more, and the
    /// specifications still have them.
    pub fn keep(mut self) {
        self.devices.clear();
    }

    /// What this process holds for `tranche mig` without a change that is being made: it was kept, or could not be
    /// released because nothing could be written. The caller makes no change at the same time, and has read `books`
    /// since it made the last one.
    pub fn left(books: &Books) -> Vec<&Claim> {
        let is_own = |claim: &&Claim| {
            let is_program = matches!(&claim.holder, Holder::Process { program, .. } if program == PROGRAM);
            is_program
                && claim
                    .process
                    .as_ref()
                    .is_some_and(|process| process.pid == std::process::id())
        };
        books.claims().filter(is_own).collect()
    }

    /// Releases what is [`DevicesHeld::left`]. The specifications are up to date now.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be written.
    pub fn release_left(claims: &Claims, left: &[&Claim]) -> Result<()> {
        for claim in left {
            claims.release_failed_start(&claim.holder, &claim.device)?;
        }
        Ok(())
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }
}

impl Drop for DevicesHeld<'_> {
    fn drop(&mut self) {
        for device in &self.devices {
            if let Err(error) = self.claims.release_failed_start(&self.holder, device) {
                // Before the next change, or with this process at the latest.
                tracing::warn!("{device} stays held by {}: {error}", self.program);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_released_is_released_before_the_next_change() {
        let top = tempfile::tempdir().unwrap();
        let claims = Claims::open(top.path()).unwrap();
        let key: DeviceKey = "GPU-bb5d1807-35ed-1a19-3c32-147f9952a2da/7/0".parse().unwrap();
        DevicesHeld::take(&claims, PROGRAM, [key.clone()]).unwrap().keep();
        DevicesHeld::take(&claims, PROGRAM, [key.clone()]).unwrap_err();
        let books = claims.books().unwrap();
        let left = DevicesHeld::left(&books);
        assert_eq!(left.len(), 1);
        DevicesHeld::release_left(&claims, &left).unwrap();
        assert!(DevicesHeld::left(&claims.books().unwrap()).is_empty());
        drop(DevicesHeld::take(&claims, PROGRAM, [key]).unwrap());
    }

    #[test]
    fn devices_are_held_for_one_at_a_time_and_all_or_none() {
        let top = tempfile::tempdir().unwrap();
        let claims = Claims::open(top.path()).unwrap();
        let key = |text: &str| text.parse::<DeviceKey>().unwrap();
        let gpu = "GPU-bb5d1807-35ed-1a19-3c32-147f9952a2da";
        let [a, b, whole] = [format!("{gpu}/7/0"), format!("{gpu}/8/0"), gpu.to_owned()].map(|text| key(&text));
        let first = DevicesHeld::take(&claims, PROGRAM, [a.clone()]).unwrap();
        let refused = DevicesHeld::take(&claims, PROGRAM, [b.clone(), a.clone()])
            .unwrap_err()
            .to_string();
        assert!(refused.contains("tranche mig"), "{refused}");
        let refused = DevicesHeld::take(&claims, PROGRAM, [whole.clone()])
            .unwrap_err()
            .to_string();
        assert!(refused.contains("tranche mig"), "{refused}");
        // What the refused one had entered is free.
        let second = DevicesHeld::take(&claims, PROGRAM, [b]).unwrap();
        drop((first, second));
        drop(DevicesHeld::take(&claims, PROGRAM, [whole]).unwrap());
        assert_eq!(claims.books().unwrap().claims().count(), 0);
    }
}
