//! Parsers of the files that the kernel and the driver provide under `/proc`. No input makes them panic.

use std::collections::BTreeMap;
use tranche_core::types::{
    CapMinor, ComputeInstanceId, DriverVersion, GpuInstanceId, GpuUuid, MemorySize, Minor, PciAddress,
};

/// The version in `/proc/driver/nvidia/version`:
///
/// ```text
/// NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024
/// NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (root@host)  Tue …
/// ```
///
/// The words differ between modules and over the years. The version is the first word of the line that has its form.
pub(crate) fn module_version(text: &str) -> Option<DriverVersion> {
    let line = text.lines().find_map(|l| l.strip_prefix("NVRM version:"))?;
    line.split_whitespace().find_map(|word| word.parse().ok())
}

/// The memory of the machine in `/proc/meminfo` (proc_meminfo(5)): `MemTotal:       125513728 kB`, in units of 1024
/// bytes.
pub(crate) fn total_memory(text: &str) -> Option<MemorySize> {
    let value = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(MemorySize::from_bytes(kib.checked_mul(1024)?)).filter(|_| kib > 0)
}

/// One GPU in `/proc/driver/nvidia/gpus/<address>/information`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Information {
    /// `Model`
    pub model: Option<String>,
    /// `GPU UUID`; the driver writes question marks until somebody has opened the GPU.
    pub uuid: Option<GpuUuid>,
    /// `Bus Location`
    pub pci: Option<PciAddress>,
    /// `Device Minor`
    pub minor: Option<Minor>,
    /// `GPU Excluded: Yes`: a parameter of the module keeps it from being used.
    pub excluded: bool,
}

impl Information {
    /// What messages call this GPU.
    pub(crate) fn label(&self) -> String {
        match self.pci {
            Some(pci) => format!("gpu {pci}"),
            None => "gpu of unknown address".to_owned(),
        }
    }
}

/// Reads an `information` file, which has lines of the form `Name: <blanks> value`. Unknown names are ignored.
pub(crate) fn information(text: &str) -> Information {
    let mut found = Information::default();
    for (name, value) in text.lines().filter_map(|l| l.split_once(':')) {
        let value = value.trim();
        match name.trim() {
            "Model" => found.model = printable(value),
            "GPU UUID" => found.uuid = value.parse().ok(),
            "Bus Location" => found.pci = value.parse().ok(),
            "Device Minor" => found.minor = value.parse().ok().filter(|_| !value.is_empty()),
            "GPU Excluded" => found.excluded = value == "Yes",
            _ => {}
        }
    }
    found
}

/// A product name for tables and messages: without control characters; `None` if nothing or too much is left.
pub(crate) fn printable(text: &str) -> Option<String> {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    let text = text.trim();
    (!text.is_empty() && text.len() <= 128).then(|| text.to_owned())
}

/// Majors of character devices by the name under which the driver registered them (`/proc/devices`). A name may have
/// several, and several names may share one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Majors(BTreeMap<String, Vec<u32>>);

impl Majors {
    /// Reads the part `Character devices:`. The part `Block devices:` has numbers of its own.
    pub(crate) fn parse(text: &str) -> Self {
        let mut majors = BTreeMap::<String, Vec<u32>>::new();
        let mut in_part = false;
        for line in text.lines() {
            if line.ends_with(':') {
                in_part = line == "Character devices:";
            } else if in_part
                && let Some((number, name)) = line.trim().split_once(' ')
                && let Ok(number) = number.parse()
            {
                majors.entry(name.trim().to_owned()).or_default().push(number);
            }
        }
        Self(majors)
    }

    /// The majors of the first of these names that is registered; empty if no name is.
    pub(crate) fn of(&self, names: &[&str]) -> &[u32] {
        names
            .iter()
            .find_map(|name| self.0.get(*name))
            .map_or(&[], Vec::as_slice)
    }
}

/// `DeviceFileMinor: 12` in a file below `/proc/driver/nvidia/capabilities`.
pub(crate) fn capability_minor(text: &str) -> Option<CapMinor> {
    let value = text.lines().find_map(|l| l.strip_prefix("DeviceFileMinor:"))?.trim();
    value.parse().ok().filter(|_| !value.is_empty())
}

/// A MIG capability. The GPU is named by its *minor*, not by its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MigCapability {
    /// To make and remove instances.
    Config,
    /// To see all instances.
    Monitor,
    /// To use a GPU instance.
    GpuInstance(Minor, GpuInstanceId),
    /// To use a compute instance.
    ComputeInstance(Minor, GpuInstanceId, ComputeInstanceId),
}

/// The minors of `wanted` in `/proc/driver/nvidia-caps/mig-minors`, which has every possible capability: tens of
/// thousands of lines, most of them for instances that do not exist. Capabilities that the text lacks are not in the
/// result.
pub(crate) fn find_minors(mig_minors: &str, wanted: &[MigCapability]) -> BTreeMap<MigCapability, CapMinor> {
    let mut names: BTreeMap<String, MigCapability> = wanted.iter().map(|c| (c.name(), *c)).collect();
    let mut found = BTreeMap::new();
    for line in mig_minors.lines() {
        if names.is_empty() {
            break;
        }
        if let Some((name, minor)) = line.split_once(' ')
            && let Some(capability) = names.remove(name)
            && let Ok(minor) = minor.trim().parse()
        {
            found.insert(capability, minor);
        }
    }
    found
}

impl MigCapability {
    /// The first word of its line in `mig-minors`: `gpu0/gi1/access` of the file `gpu0/mig/gi1/access`.
    fn name(self) -> String {
        self.file().replace("mig/", "")
    }

    /// Its file below `/proc/driver/nvidia/capabilities`, which exists as long as the instance does.
    pub(crate) fn file(self) -> String {
        match self {
            Self::Config => "mig/config".to_owned(),
            Self::Monitor => "mig/monitor".to_owned(),
            Self::GpuInstance(gpu, gi) => format!("gpu{gpu}/mig/gi{gi}/access"),
            Self::ComputeInstance(gpu, gi, ci) => format!("gpu{gpu}/mig/gi{gi}/ci{ci}/access"),
        }
    }
}

/// The N of a name like `gi3`; `None` for other names.
pub(crate) fn numbered(name: &str, prefix: &str) -> Option<u32> {
    let digits = name.strip_prefix(prefix)?;
    // `u32::from_str` accepts a sign, and the driver uses no names such as `gi03`.
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    plain.then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn versions_of_every_module() {
        let v = |text: &str| module_version(text).map(|v| v.to_string());
        let gcc = "\nGCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n";
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  450.80.02  Wed Sep 23 01:13:39 UTC 2020";
        assert_eq!(v(&format!("{closed}{gcc}")).as_deref(), Some("450.80.02"));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build  \
                    (dvs-builder@U22-I3-B03-03-1)  Tue Sep 23 09:55:41 UTC 2025";
        assert_eq!(v(&format!("{open}{gcc}")).as_deref(), Some("580.95.05"));
        assert_eq!(v(gcc), None);
        assert_eq!(v("NVRM version: none"), None);
        assert_eq!(v(""), None);
    }

    #[test]
    fn information_of_a_gpu() {
        let text = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 123\nGPU UUID: \t GPU-8188460b-0e3a-4d7e-9d3a-0123456789ab\n\
                    Video BIOS: \t 96.00.99.00.01\nBus Type: \t PCIe\nDMA Size: \t 52 bits\nBus Location: \t 0000:c1:00.0\n\
                    Device Minor: \t 3\nGPU Firmware: \t 550.54.15\nGPU Excluded:\t No\n";
        let i = information(text);
        assert_eq!(i.model.as_deref(), Some("NVIDIA H200"));
        assert_eq!(i.minor, Some(Minor(3)));
        assert_eq!(i.pci.unwrap().to_string(), "0000:c1:00.0");
        assert!(i.uuid.is_some() && !i.excluded);
        let asleep =
            information("GPU UUID: \t GPU-????????-????-????-????-????????????\nGPU Excluded:\t Yes\nDevice Minor:\n");
        assert_eq!((asleep.uuid, asleep.excluded, asleep.minor), (None, true, None));
    }

    #[test]
    fn majors_of_character_devices_alone() {
        let majors = Majors::parse(
            "Character devices:\n  1 mem\n195 nvidia\n195 nvidia-modeset\n195 nvidiactl\n234 nvidia-caps\n\
             235 nvidia-uvm\n\nBlock devices:\n  7 nvidia-uvm\n259 blkext\n",
        );
        assert_eq!(majors.of(&["nvidia-frontend", "nvidia"]), [195]);
        assert_eq!(majors.of(&["nvidia-uvm"]), [235]);
        assert!(majors.of(&["nvidia-fs"]).is_empty());
        assert_eq!(Majors::parse("195 nvidia\n"), Majors::default());
    }

    #[test]
    fn capabilities() {
        let file = "DeviceFileMinor: 12\nDeviceFileMode: 292\nDeviceFileModify: 1\n";
        assert_eq!(capability_minor(file), Some(CapMinor(12)));
        for bad in [
            "",
            "DeviceFileMinor:\n",
            "DeviceFileMinor: x\n",
            "DeviceFileMinor: -1\n",
        ] {
            assert_eq!(capability_minor(bad), None, "{bad}");
        }
    }

    #[test]
    fn minors_that_are_asked_for() {
        let minors = "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu1/gi1/access x\n";
        let gi = MigCapability::GpuInstance(Minor(0), GpuInstanceId(1));
        let ci = MigCapability::ComputeInstance(Minor(0), GpuInstanceId(1), ComputeInstanceId(0));
        let bad = MigCapability::GpuInstance(Minor(1), GpuInstanceId(1));
        let found = find_minors(minors, &[gi, ci, bad, MigCapability::Config]);
        assert_eq!(found.get(&gi), Some(&CapMinor(12)));
        assert_eq!(found.get(&ci), Some(&CapMinor(13)));
        assert_eq!(found.get(&MigCapability::Config), Some(&CapMinor(1)));
        assert_eq!(found.get(&bad), None);
        assert_eq!(ci.file(), "gpu0/mig/gi1/ci0/access");
    }

    #[test]
    fn numbered_names() {
        assert_eq!(numbered("gi13", "gi"), Some(13));
        for bad in ["gi", "gi+1", "gi01", "gi1x", "ci1", "gi99999999999"] {
            assert_eq!(numbered(bad, "gi"), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_a_parser(text in any::<String>(), lines in "([a-zA-Z0-9 :/.\\n\\t-]|gpu|gi|access|Device){0,80}") {
            for text in [text, lines] {
                let _ = module_version(&text);
                let _ = information(&text);
                let _ = capability_minor(&text);
                let _ = Majors::parse(&text).of(&["nvidia"]);
                let _ = numbered(&text, "gi");
                let known = find_minors(&text, &[MigCapability::Config, MigCapability::Monitor]);
                prop_assert!(known.len() <= 2);
            }
        }
    }
}
