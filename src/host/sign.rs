//! Whether anything shows that this host has NVIDIA's driver.

use super::driver::{FoundLibraries, needs_libcuda};
use super::scan::Scan;
use tranche_core::types::HostPath;
use tranche_plan::inventory::{Degraded, Inventory, LIBCUDA, PlatformKind};

/// The first thing that shows a driver: a path as the host names it, or the version of a library.
pub(crate) fn of_driver(scan: &Scan<'_>, found: &FoundLibraries<'_>) -> Option<String> {
    match path_of_driver(scan, found) {
        Some(path) => Some(path.as_str().to_owned()),
        None => Some(format!("a library of driver {}", found.version.as_ref()?)),
    }
}

fn path_of_driver(scan: &Scan<'_>, found: &FoundLibraries<'_>) -> Option<HostPath> {
    const VERSION: &str = "/driver/nvidia/version";
    let roots = scan.roots;
    if scan.module.is_some() && roots.proc.exists(VERSION) {
        return Some(roots.proc.host(VERSION));
    }
    if roots.sys.exists("/module/nvidia") {
        return Some(roots.sys.host("/module/nvidia"));
    }
    let modules = roots.proc.text("/modules").unwrap_or_default();
    if modules.lines().any(|line| line.split(' ').next() == Some("nvidia")) {
        return Some(roots.proc.host("/modules"));
    }
    if let Some(node) = ["/dev/nvidiactl", "/dev/nvidia0"]
        .iter()
        .find(|node| roots.dev.exists(node))
    {
        return Some(roots.dev.host(node));
    }
    ["libcuda.so.1", "libnvidia-ml.so.1"].iter().find_map(|name| {
        let listing = found.listings.iter().find(|l| l.has(name))?;
        Some(listing.dir.host().join(name))
    })
}

/// Notes what a host with a driver must have and this one lacks. On other platforms, other things are missing by
/// design.
pub(crate) fn note_missing(scan: &Scan<'_>, sign: Option<String>, found: &FoundLibraries<'_>, inventory: &Inventory) {
    let Some(shown_by) = sign.filter(|_| inventory.platform.kind == PlatformKind::Linux) else {
        return;
    };
    match &inventory.driver {
        Some(driver) if found.version.is_some() => {
            let is_missing = driver.library(LIBCUDA).is_none();
            // A machine that only draws has no library of CUDA, and misses none.
            if is_missing && driver.files.iter().any(needs_libcuda) {
                scan.findings.degrade(Degraded::Library {
                    soname: LIBCUDA.to_owned(),
                });
            }
        }
        _ => scan.findings.degrade(Degraded::NoLibraries {
            shown_by: shown_by.clone(),
        }),
    }
    if inventory.gpus.is_empty() {
        scan.findings.degrade(Degraded::NoGpu { shown_by });
    }
}
