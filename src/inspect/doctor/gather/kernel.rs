//! Whether the running kernel has the modules of the driver.

use super::machine::Machine;
use std::fs;
use std::path::Path;

/// The names of the driver's first module. Debian gives it others, with the branch of the driver in them.
const MODULES: [&str; 4] = ["nvidia.ko", "nvidia-current", "nvidia-tesla", "nvidia-legacy"];

/// The release of the running kernel, if the list of its modules has none of the driver. `None` for another machine,
/// and for a kernel without a list, as in a container.
pub(super) fn without_modules(machine: &Machine) -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease")
        .ok()
        .filter(|_| machine.is_here)?;
    let release = release.trim();
    let places = [
        "/lib/modules",
        "/usr/lib/modules",
        "/run/booted-system/kernel-modules/lib/modules",
    ];
    let mut lists = places
        .iter()
        .map(|place| Path::new(place).join(release).join("modules.dep"));
    let list = lists.find_map(|list| fs::read_to_string(list).ok())?;
    (!has_module(&list)).then(|| release.to_owned())
}

/// Whether a list of modules (modules.dep(5)) has that of the driver.
fn has_module(list: &str) -> bool {
    let paths = list.lines().filter_map(|line| line.split(':').next());
    let mut names = paths.filter_map(|path| path.rsplit('/').next());
    names.any(|name| MODULES.iter().any(|module| name.starts_with(module)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_known_by_its_names() {
        for (list, has) in [
            ("updates/dkms/nvidia.ko.xz: kernel/drivers/x.ko\n", true),
            ("updates/dkms/nvidia-current.ko:\n", true),
            (
                "kernel/drivers/video/fbdev/nvidia/nvidiafb.ko: x.ko\nkernel/platform/nvidia-wmi-ec-backlight.ko:\n",
                false,
            ),
            ("kernel/a.ko: kernel/nvidia.ko\n", false),
            ("", false),
        ] {
            assert_eq!(has_module(list), has, "{list}");
        }
    }
}
