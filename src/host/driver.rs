//! The driver's files: which files the host has, where they belong in a container, and what each is needed for.

mod by_soname;
mod icd;
mod libraries;
mod lists;
mod locate;
mod others;
mod prefix;
mod search;

use super::scan::Scan;
pub(super) use lists::{daemon_directories, needs_libcuda};
pub(crate) use search::{FoundLibraries, nvml, search};
use std::collections::BTreeMap;
use tranche_plan::inventory::{Driver, DriverFile, WarningKind};

/// The driver without what only NVML knows; `None` if the host has neither its module nor its libraries.
pub(crate) fn collect(scan: &Scan<'_>, found: &FoundLibraries<'_>) -> Option<Driver> {
    let version = scan.module.as_ref().or(found.version.as_ref())?;
    let mut driver = Driver {
        version: version.clone(),
        cuda: None,
        limits_cgroups: false,
        library_dirs: Vec::new(),
        files: Vec::new(),
    };
    let Some(of_libraries) = &found.version else {
        let text = format!(
            "the kernel module is {version}, but no libraries of it were found in {} directories; install them, or \
             name their directory with --driver-root or --library-search-path",
            found.looked_in.len()
        );
        scan.findings.warn_of(WarningKind::Incomplete, "driver", text);
        scan.findings.absent(format!("lib*.so.{version}"), &found.looked_in);
        return Some(driver);
    };
    if of_libraries != version {
        let text = format!(
            "the kernel module is {version}, the libraries are {of_libraries}: programs will fail; reboot, or unload \
             and load the module"
        );
        scan.findings.warn_of(WarningKind::Versions, "driver", text);
    }
    let libraries = libraries::collect(scan, found, of_libraries);
    driver.library_dirs = libraries.dirs;
    let prefixes = prefix::of_libraries(scan, found, &driver.library_dirs);
    let binaries = others::binaries(scan, &prefixes);
    let (configs, named) = others::configs(scan, &prefixes);
    let others = [
        binaries,
        configs,
        others::firmware(scan, of_libraries),
        others::sockets(scan),
    ];
    // One file per path in a container, sorted by it.
    let mut by_path: BTreeMap<_, DriverFile> = BTreeMap::new();
    for file in libraries.files.into_values().chain(others.into_iter().flatten()) {
        by_path.entry(file.container.clone()).or_insert(file);
    }
    driver.files = by_path.into_values().collect();
    icd::note_absent(scan, &named, &driver.files);
    Some(driver)
}
