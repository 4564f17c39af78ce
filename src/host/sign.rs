//! Whether anything shows that this host has NVIDIA's driver.

use super::driver::Found;
use super::{PlatformKind, Roots};
use crate::inventory::{Degraded, Inventory};
use crate::types::DriverVersion;

/// The first thing that shows a driver, as the host names it: the kernel module, a device node, a library.
pub(crate) fn of_driver(roots: &Roots, module: Option<&DriverVersion>, found: &Found) -> Option<String> {
    const VERSION: &str = "/driver/nvidia/version";
    let shown = |path: crate::types::HostPath| Some(path.as_str().to_owned());
    if module.is_some() && roots.proc.exists(VERSION) {
        return shown(roots.proc.host(VERSION));
    }
    if roots.sys.exists("/module/nvidia") {
        return shown(roots.sys.host("/module/nvidia"));
    }
    let modules = roots.proc.text("/modules").unwrap_or_default();
    if modules.lines().any(|line| line.split(' ').next() == Some("nvidia")) {
        return shown(roots.proc.host("/modules"));
    }
    for node in ["/dev/nvidiactl", "/dev/nvidia0"] {
        if roots.dev.exists(node) {
            return shown(roots.dev.host(node));
        }
    }
    for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        if let Some(listing) = found.listings.iter().find(|l| l.has(name)) {
            return shown(roots.driver.host(&format!("{}/{name}", listing.dir)));
        }
    }
    found
        .version
        .as_ref()
        .map(|version| format!("a library of driver {version}"))
}

/// Notes what a host with a driver must have and does not. On the other platforms other things are missing by design.
pub(crate) fn note_missing(sign: Option<&str>, found: &Found, inventory: &mut Inventory) {
    let Some(sign) = sign.filter(|_| inventory.platform.kind == PlatformKind::Linux) else {
        return;
    };
    let shown_by = sign.to_owned();
    if found.version.is_none() {
        inventory.degrade(Degraded::NoLibraries {
            shown_by: shown_by.clone(),
        });
    }
    if inventory.gpus.is_empty() {
        inventory.degrade(Degraded::NoGpu { shown_by });
    }
}
