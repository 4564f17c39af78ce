//! The machine: its processor, its kernel, and the kind of platform.

use super::roots::Roots;
use tranche_plan::inventory::{Arch, Gpu, Platform, PlatformKind};

/// The platform as far as it is known before the GPUs are. [`kind`] completes it.
pub(crate) fn read(roots: &Roots) -> Platform {
    Platform {
        arch: arch_of_module(roots).unwrap_or(if cfg!(target_arch = "aarch64") {
            Arch::Aarch64
        } else {
            Arch::X86_64
        }),
        kind: PlatformKind::Linux,
        kernel: roots
            .proc
            .text("/sys/kernel/osrelease")
            .map(|t| t.trim().to_owned())
            // It becomes a part of a path.
            .ok()
            .filter(|t| !t.contains('/') && t != "..")
            .unwrap_or_default(),
        // Every cgroup of version 2 has this file, and none of version 1 (cgroups(7)).
        cgroup_v2: roots.sys.exists("/fs/cgroup/cgroup.controllers"),
    }
}

/// A copy of another machine may be of another processor, and the kernel module names its own.
fn arch_of_module(roots: &Roots) -> Option<Arch> {
    arch_in(&roots.proc.text("/driver/nvidia/version").ok()?)
}

fn arch_in(text: &str) -> Option<Arch> {
    let line = text.lines().find(|l| l.starts_with("NVRM version:"))?;
    line.split_whitespace().find_map(|word| match word {
        "x86_64" => Some(Arch::X86_64),
        "aarch64" => Some(Arch::Aarch64),
        _ => None,
    })
}

/// What the driver runs on, once the GPUs are known.
///
/// WSL has a node of its own and none of the driver's. Tegra has a release file, or a family in sysfs. If NVML knows
/// its GPU, the GPU's name shows that it is integrated: `(nvgpu)`, or Thor, which has the ordinary driver but needs
/// other mounts.
pub(crate) fn kind(roots: &Roots, gpus: &[Gpu]) -> PlatformKind {
    let has_ordinary_node = roots.dev.exists("/dev/nvidiactl");
    if !has_ordinary_node && (roots.dev.exists("/dev/dxg") || roots.driver.exists("/usr/lib/wsl/lib/libdxcore.so")) {
        return PlatformKind::Wsl;
    }
    let integrated = gpus
        .iter()
        .any(|g| g.name.contains("(nvgpu)") || g.name.starts_with("NVIDIA Thor"));
    let family = roots.sys.text("/devices/soc0/family").unwrap_or_default();
    let tegra = roots.driver.exists("/etc/nv_tegra_release") || family.trim().to_ascii_lowercase().starts_with("tegra");
    match integrated || (tegra && gpus.is_empty()) {
        true => PlatformKind::Tegra,
        false => PlatformKind::Linux,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_names_its_processor() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\n";
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build\n";
        assert_eq!(arch_in(closed), Some(Arch::X86_64));
        assert_eq!(arch_in(open), Some(Arch::Aarch64));
        assert_eq!(arch_in("GCC version: x86_64"), None);
    }
}
