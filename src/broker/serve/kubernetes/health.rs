//! Whether a GPU is still on its bus. That costs two system calls and no question to the driver, which may hang when a
//! GPU is lost.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use tranche_core::types::{GpuUuid, PciAddress};
use tranche_plan::inventory::Gpu;

/// The devices on the PCI buses (kernel, Documentation/ABI/testing/sysfs-bus-pci).
pub(super) const PCI_DEVICES: &str = "/sys/bus/pci/devices";

/// The vendor that a device reports which does not answer: reads of a bus without a device give ones (PCI Local Bus
/// Specification, 6.1).
const NO_ANSWER: [u8; 2] = [0xff, 0xff];

/// Those of `gpus` that cannot work, each with the reason. If the host was not examined here, none of them is below
/// `devices`, and nothing is known of any.
pub(super) fn lost(devices: &Path, gpus: &[Gpu]) -> BTreeMap<GpuUuid, String> {
    let is_here = gpus.iter().any(|gpu| devices.join(gpu.pci.to_string()).exists());
    let lost = gpus.iter().filter(|_| is_here).filter_map(|gpu| {
        let why = why_lost(devices, &gpu.pci)?;
        Some((gpu.uuid.clone(), why))
    });
    lost.collect()
}

/// Why the GPU at `address` cannot work; `None` if it answers.
fn why_lost(devices: &Path, address: &PciAddress) -> Option<String> {
    let mut vendor = [0; 2];
    let read = File::open(devices.join(address.to_string()).join("config")).and_then(|mut f| f.read_exact(&mut vendor));
    match read {
        Ok(()) if vendor == NO_ANSWER => Some(format!("the GPU at {address} has fallen off the bus")),
        Ok(()) => None,
        Err(e) if e.kind() == ErrorKind::NotFound => Some(format!("the GPU at {address} is not on its bus any more")),
        Err(e) => Some(format!("the GPU at {address} cannot be read: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_gpu_that_answers_works_and_comes_back() {
        let top = tempfile::tempdir().unwrap();
        let address: PciAddress = "0000:41:00.0".parse().unwrap();
        let device = top.path().join(address.to_string());
        fs::create_dir(&device).unwrap();
        let answers = |bytes: &[u8]| {
            fs::write(device.join("config"), bytes).unwrap();
            why_lost(top.path(), &address)
        };
        assert_eq!(answers(&[0xde, 0x10, 0, 0]), None);
        assert_eq!(
            answers(&[0xff; 64]).unwrap(),
            "the GPU at 0000:41:00.0 has fallen off the bus"
        );
        assert_eq!(answers(&[0xde, 0x10, 0, 0]), None);
        assert!(answers(&[]).is_some(), "an empty file is no answer");
    }

    #[test]
    fn a_gpu_that_left_its_bus_is_lost_and_one_of_another_machine_is_not() {
        let top = tempfile::tempdir().unwrap();
        let inventory = tranche_plan::sim::open("t4x2").unwrap();
        let lost = || lost(top.path(), &inventory.gpus);
        assert_eq!(lost(), BTreeMap::new(), "another machine");
        let device = top.path().join(inventory.gpus[0].pci.to_string());
        fs::create_dir(&device).unwrap();
        fs::write(device.join("config"), [0xde, 0x10]).unwrap();
        let lost: Vec<(GpuUuid, String)> = lost().into_iter().collect();
        let [(uuid, why)] = &lost[..] else {
            panic!("{lost:?}");
        };
        assert_eq!(*uuid, inventory.gpus[1].uuid);
        assert!(why.ends_with("is not on its bus any more"), "{why}");
    }
}
