//! The devices of an inventory: the only place that compares what a person typed with the devices that exist, and that
//! says which ones there are.

use super::{Gpu, Inventory, MigDevice};
use std::fmt;
use tranche_core::error::{Error, Result};
use tranche_core::text::candidates;
use tranche_core::types::{Device, DeviceKey, DeviceSelector, MemorySize};

/// A device of an inventory: a GPU, or a MIG device on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostDevice<'a> {
    /// The GPU, or the GPU that the MIG device is on.
    pub gpu: &'a Gpu,
    /// The MIG device; `None` for the whole GPU.
    pub mig: Option<&'a MigDevice>,
}

impl HostDevice<'_> {
    /// Its indices. They are names only where [`Gpu::index_is_known`].
    pub fn device(self) -> Device {
        Device {
            gpu: self.gpu.index,
            mig: self.mig.map(|mig| mig.index),
        }
    }

    /// Its key in the ledger.
    pub fn key(self) -> DeviceKey {
        let gpu = self.gpu.uuid.clone();
        match self.mig {
            None => DeviceKey::whole(gpu),
            Some(mig) => DeviceKey::mig(gpu, mig.gpu_instance, mig.compute_instance),
        }
    }

    /// Its UUID; `None` for a MIG device whose UUID is unknown because NVML did not answer.
    pub fn uuid(self) -> Option<String> {
        match self.mig {
            None => Some(self.gpu.uuid.to_string()),
            Some(mig) => mig.uuid.as_ref().map(ToString::to_string),
        }
    }

    /// Its product name, with the profile of a MIG device: `NVIDIA A100-SXM4-40GB MIG 1g.5gb`.
    pub fn product(self) -> String {
        match self.mig {
            None => self.gpu.name.clone(),
            Some(mig) => format!("{} {}", self.gpu.name, mig.product()),
        }
    }

    /// Its memory, if it is known.
    pub fn memory(self) -> Option<MemorySize> {
        self.mig.map_or(self.gpu.memory, |mig| mig.memory)
    }

    /// Its streaming multiprocessors, all of them, if they are known.
    pub fn sms(self) -> Option<u32> {
        self.mig.map_or(self.gpu.sms, |mig| mig.sms)
    }

    /// What a person may call it: `0`, `0:1`, or a UUID where the index is not known.
    pub fn name(self) -> String {
        if self.gpu.index_is_known {
            return self.device().cdi_name();
        }
        self.uuid().or_else(|| self.old_uuid()).unwrap_or_default()
    }

    /// The name that drivers before 470 gave a MIG device: `MIG-GPU-…/7/0`. NVIDIA's tools still accept it.
    fn old_uuid(self) -> Option<String> {
        self.mig.map(|_| format!("MIG-{}", self.key()))
    }

    /// How this device is written in the form of `selector`, the best way first. A device may have no such form: a MIG
    /// device has no PCI address of its own.
    fn in_form_of(self, selector: &DeviceSelector) -> Vec<String> {
        match (selector, self.mig) {
            // An index means a device only if the source of the inventory knows it: a name must always mean the same
            // device, with NVML and without.
            (DeviceSelector::Index(_), _) => vec![self.name()],
            (DeviceSelector::MigUuid(_), Some(_)) => [self.uuid(), self.old_uuid()].into_iter().flatten().collect(),
            (DeviceSelector::GpuUuid(_), None) => vec![self.gpu.uuid.to_string()],
            (DeviceSelector::Pci(_), None) => vec![self.gpu.pci.to_string()],
            (DeviceSelector::Minor(_), None) => vec![DeviceSelector::Minor(self.gpu.minor).to_string()],
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for HostDevice<'_> {
    /// `gpu 0`, `gpu 0:1`, `gpu GPU-…`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("gpu {}", self.name()))
    }
}

/// The devices of an inventory, by index: each GPU, followed by the MIG devices on it.
#[derive(Debug, Clone)]
pub struct Catalogue<'a>(Vec<HostDevice<'a>>);

impl Inventory {
    /// The devices of this host.
    pub fn catalogue(&self) -> Catalogue<'_> {
        let mut devices: Vec<HostDevice<'_>> = Vec::new();
        for gpu in &self.gpus {
            devices.push(HostDevice { gpu, mig: None });
            devices.extend(gpu.mig_devices.iter().map(|mig| HostDevice { gpu, mig: Some(mig) }));
        }
        devices.sort_by(|a, b| {
            let gpu = |d: &HostDevice<'_>| (d.gpu.index, d.gpu.pci);
            let mig = |d: &HostDevice<'_>| d.mig.map(|m| (m.index, m.gpu_instance, m.compute_instance));
            let by_gpu = gpu(a).cmp(&gpu(b)).then_with(|| a.gpu.uuid.cmp(&b.gpu.uuid));
            by_gpu.then_with(|| mig(a).cmp(&mig(b)))
        });
        Catalogue(devices)
    }
}

impl<'a> Catalogue<'a> {
    /// Every GPU and MIG device.
    pub fn all(&self) -> impl Iterator<Item = HostDevice<'a>> {
        self.0.iter().copied()
    }

    /// The GPUs, including those in MIG mode.
    pub fn gpus(&self) -> impl Iterator<Item = &'a Gpu> {
        self.all()
            .filter(|device| device.mig.is_none())
            .map(|device| device.gpu)
    }

    /// The devices that CUDA runs on. A GPU in MIG mode is not one of them: only its MIG devices are.
    pub fn usable(&self) -> impl Iterator<Item = HostDevice<'a>> {
        self.all()
            .filter(|device| device.mig.is_some() || !device.gpu.is_in_mig_mode())
    }

    /// The device that `selector` names; `None` where this host does not have it.
    pub fn find(&self, selector: &DeviceSelector) -> Option<HostDevice<'a>> {
        let text = selector.to_string();
        self.all().find(|device| device.in_form_of(selector).contains(&text))
    }

    /// The device that `selector` names.
    ///
    /// # Errors
    /// Returns a usage error that lists the devices of this host if `selector` names none of them.
    pub fn get(&self, selector: &DeviceSelector) -> Result<HostDevice<'a>> {
        self.find(selector)
            .ok_or_else(|| Error::usage(format!("device {selector}"), "not found").hint(self.instead_of(selector)))
    }

    /// As [`Catalogue::get`], where the case of the letters of a UUID does not count.
    ///
    /// # Errors
    /// As [`Catalogue::get`].
    pub fn get_in_any_case(&self, selector: &DeviceSelector) -> Result<HostDevice<'a>> {
        let text = selector.to_string();
        let is_it = |form: &String| form.eq_ignore_ascii_case(&text);
        let found = self.find(selector);
        let found = found.or_else(|| self.all().find(|device| device.in_form_of(selector).iter().any(is_it)));
        found.map_or_else(|| self.get(selector), Ok)
    }

    /// The device with the indices of a plan that was made from this inventory.
    pub fn at(&self, device: Device) -> Option<HostDevice<'a>> {
        self.all().find(|one| one.device() == device)
    }

    /// What a person may write instead of `selector`, which names no device of this host.
    pub fn instead_of(&self, selector: &DeviceSelector) -> String {
        let described = |device: HostDevice<'_>| {
            let (name, form) = (device.name(), device.in_form_of(selector).into_iter().next()?);
            Some(if name == form { name } else { format!("{name} ({form})") })
        };
        // GPUs first, because one GPU may have more MIG devices than a list shows.
        let (gpus, migs): (Vec<_>, Vec<_>) = self.all().partition(|device| device.mig.is_none());
        let names: Vec<String> = gpus.into_iter().chain(migs).filter_map(described).collect();
        let asked = selector.to_string();
        match (selector, &names[..]) {
            (DeviceSelector::MigUuid(_), []) => format!("{MIG_UUIDS_CHANGE}; this host has no MIG devices"),
            (DeviceSelector::MigUuid(_), names) => {
                format!(
                    "{MIG_UUIDS_CHANGE}, so name it by index; this host has {}",
                    candidates(&asked, names)
                )
            }
            (_, []) => "this host has no GPU".to_owned(),
            (_, names) => format!("this host has {}", candidates(&asked, names)),
        }
    }
}

const MIG_UUIDS_CHANGE: &str = "the UUID of a MIG device changes with every MIG layout";

#[cfg(test)]
mod tests {
    fn refused(selector: &str) -> String {
        let inventory = crate::sim::open("dgx-a100-mig").unwrap();
        inventory
            .catalogue()
            .get(&selector.parse().unwrap())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn the_case_of_a_uuid_counts_only_where_it_is_said_to() {
        let inventory = crate::sim::open("dgx-a100-mig").unwrap();
        let catalogue = inventory.catalogue();
        let with_uuid = catalogue.all().filter_map(|device| Some((device, device.uuid()?)));
        for (device, uuid) in with_uuid {
            let (prefix, rest) = uuid.split_at(4);
            let upper = format!("{prefix}{}", rest.to_ascii_uppercase());
            assert!(upper != uuid);
            let upper = upper.parse().unwrap();
            assert_eq!(catalogue.get_in_any_case(&upper).unwrap().key(), device.key());
            assert!(catalogue.find(&upper).is_none());
        }
        let unknown = catalogue.get_in_any_case(&"GPU-12345678".parse().unwrap());
        assert!(
            unknown
                .unwrap_err()
                .to_string()
                .starts_with("device GPU-12345678: not found")
        );
    }

    #[test]
    fn an_unknown_device_is_refused_with_those_that_exist_in_the_same_form() {
        let inventory = crate::sim::open("dgx-a100-mig").unwrap();
        let first = &inventory.gpus[0];
        assert!(
            refused("9").starts_with("device 9: not found; this host has 0, 1, "),
            "{}",
            refused("9")
        );
        for (selector, form) in [
            ("GPU-12345678", first.uuid.to_string()),
            ("0042:41:00.0", first.pci.to_string()),
            ("/dev/nvidia42", format!("/dev/nvidia{}", first.minor)),
        ] {
            let expected = format!("device {selector}: not found; this host has 0 ({form}), 1 (");
            assert!(refused(selector).starts_with(&expected), "{}", refused(selector));
        }
        let (gpu, mig) = inventory.mig_devices().next().unwrap();
        let known = format!(
            "this host has {}:{} ({}), ",
            gpu.index,
            mig.index,
            mig.uuid.as_ref().unwrap()
        );
        assert!(refused("MIG-12345678").contains(&known), "{}", refused("MIG-12345678"));
    }
}
