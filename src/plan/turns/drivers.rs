//! Which drivers can suspend the work of a container and resume it, as data with sources, and on which devices.

use crate::inventory::{Arch, Driver, HostDevice, Inventory, VirtualizationMode};
use tranche_core::types::DriverVersion;

/// A branch of the driver, and what it adds for turns.
struct Branch {
    major: u32,
    adds: &'static str,
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for the reader; a test requires one of each row")
    )]
    source: &'static str,
}

/// What is needed, the oldest first.
const NEEDED: [Branch; 2] = [
    Branch {
        major: 570,
        adds: "functions that suspend a process",
        source: "NVIDIA's cuda-checkpoint README and CUDA's driver API 12.8, \"CUDA checkpointing\"",
    },
    Branch {
        major: 580,
        adds: "suspending a process that sees only some of the GPUs",
        source: "NVIDIA's cuda-checkpoint README, \"partial passthrough\"",
    },
];

/// What a machine with processors of ARM needs.
const ON_ARM: Branch = Branch {
    major: 595,
    adds: "suspending a process on ARM",
    source: "NVIDIA/cuda-checkpoint#51, nvcf#730",
};

/// From which branch on a whole machine has hung half a minute after work was killed that had been resumed, and did not
/// after work that was suspended again. Of no later driver is it known that it does not.
///
/// It was seen four times of four with the open modules 595.71.05, on bare metal, and once more after a resumed process
/// had failed by itself (NVIDIA/cuda-checkpoint#53).
const HANGS_SINCE: u32 = 595;

/// What happens with this driver when work is killed that was resumed, in words; `None` if nothing is known.
pub fn hangs(driver: &DriverVersion) -> Option<String> {
    (driver.major() >= HANGS_SINCE).then(|| {
        format!("with driver {driver}, the machine can hang when resumed work is killed (NVIDIA/cuda-checkpoint#53)")
    })
}

/// Why work on `target`, a device of `inventory`, cannot be suspended and resumed; `None` if nothing is known against
/// it.
pub fn unfit(inventory: &Inventory, target: HostDevice<'_>) -> Option<String> {
    if target.mig.is_some() || target.gpu.is_in_mig_mode() {
        // NVIDIA/cuda-checkpoint#42.
        return Some("the driver cannot suspend work on a MIG device".to_owned());
    }
    if target.gpu.uses_system_memory {
        return Some("its memory is that of the machine, so that suspended work would free none".to_owned());
    }
    if target.gpu.virtualization == Some(VirtualizationMode::Vgpu) {
        return Some("NVIDIA documents no suspended work in a vGPU guest".to_owned());
    }
    let driver = inventory.driver.as_ref();
    driver.and_then(|driver| lacks(driver, inventory.platform.arch))
}

/// What `driver` lacks for turns on a machine of this kind, in words; `None` if it lacks nothing that is known.
fn lacks(driver: &Driver, arch: Arch) -> Option<String> {
    let major = driver.version.major();
    let on_arm = (arch == Arch::Aarch64).then_some(&ON_ARM);
    let missing = NEEDED.iter().chain(on_arm).find(|branch| major < branch.major)?;
    Some(format!(
        "driver {} lacks {}, which needs driver {}",
        driver.version.as_str(),
        missing.adds,
        missing.major
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_thing_that_is_missing_is_named() {
        let of = |version: &str, arch| {
            let driver = Driver {
                version: version.parse().unwrap(),
                cuda: None,
                limits_cgroups: false,
                library_dirs: Vec::new(),
                files: Vec::new(),
            };
            lacks(&driver, arch)
        };
        let lacks = |version, arch| of(version, arch).unwrap_or_default();
        assert!(lacks("535.261.03", Arch::X86_64).ends_with("which needs driver 570"));
        assert!(lacks("575.57.08", Arch::X86_64).contains("only some of the GPUs, which needs driver 580"));
        assert_eq!(of("580.95.05", Arch::X86_64), None);
        assert!(lacks("580.95.05", Arch::Aarch64).ends_with("on ARM, which needs driver 595"));
        assert_eq!(of("595.71.05", Arch::Aarch64), None);
        let hangs = |version: &str| hangs(&version.parse().unwrap());
        assert_eq!(hangs("580.95.05"), None);
        assert!(["595.71.05", "615.10"].iter().all(|version| hangs(version).is_some()));
        assert!(NEEDED.iter().chain([&ON_ARM]).all(|branch| !branch.source.is_empty()));
    }

    #[test]
    fn only_whole_gpus_with_memory_of_their_own_are_fit() {
        let mut inventory = crate::sim::open("dgx-a100-mig").unwrap();
        let unfit = |inventory: &Inventory, index: usize| {
            let gpu = &inventory.gpus[index];
            unfit(inventory, HostDevice { gpu, mig: None })
        };
        inventory.driver.as_mut().unwrap().version = "580.95.05".parse().unwrap();
        let mig = inventory.gpus.iter().position(|gpu| gpu.is_in_mig_mode()).unwrap();
        assert!(unfit(&inventory, mig).unwrap().contains("on a MIG device"));
        let whole = inventory.gpus.iter().position(|gpu| !gpu.is_in_mig_mode()).unwrap();
        assert_eq!(unfit(&inventory, whole), None);
        inventory.driver.as_mut().unwrap().version = "575.57.08".parse().unwrap();
        assert!(unfit(&inventory, whole).unwrap().contains("needs driver 580"));
        inventory.gpus[whole].uses_system_memory = true;
        assert!(unfit(&inventory, whole).unwrap().contains("would free none"));
    }
}
