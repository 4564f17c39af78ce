//! The driver's files: which there are, where they belong in a container, what each is needed for.

mod libraries;
mod lists;
mod others;
mod search;

use super::{Options, Roots};
use crate::inventory::{Driver, DriverFile, Inventory};
use crate::types::DriverVersion;
pub(crate) use search::{Found, nvml, search};
use std::collections::BTreeMap;

/// Everything of the driver; `None` where the host has neither module nor libraries. What only NVML tells is left
/// open.
pub(crate) fn collect(
    roots: &Roots,
    options: &Options,
    found: &Found<'_>,
    module: Option<&DriverVersion>,
    inventory: &mut Inventory,
) -> Option<Driver> {
    let version = module.or(found.version.as_ref())?.clone();
    let mut driver = Driver {
        version: version.clone(),
        cuda: None,
        library_dirs: Vec::new(),
        files: Vec::new(),
    };
    let Some(of_libraries) = &found.version else {
        inventory.warn(
            "driver",
            format!(
                "the kernel module is {version}, but there are no libraries of it in {} directories; install them, or \
                 say where they are with --driver-root or --library-search-path",
                found.looked_in.len()
            ),
        );
        inventory.absent(format!("lib*.so.{version}"), found.looked_in.iter().cloned());
        return Some(driver);
    };
    if *of_libraries != version {
        inventory.warn(
            "driver",
            format!(
                "the kernel module is {version}, the libraries are {of_libraries}: programs will fail; reboot, or \
                 unload and load the module"
            ),
        );
    }
    let tree = &roots.driver;
    let libraries = libraries::collect(roots, options, found, of_libraries, inventory);
    driver.library_dirs = libraries.dirs;
    let others = [
        others::binaries(tree, options, inventory),
        others::configs(roots, options, inventory),
        others::firmware(roots, of_libraries, inventory),
        others::sockets(tree, inventory),
    ];
    // One file per place in a container; sorted.
    let mut by_place: BTreeMap<_, DriverFile> = BTreeMap::new();
    for file in libraries.files.into_values().chain(others.into_iter().flatten()) {
        by_place.entry(file.container.clone()).or_insert(file);
    }
    driver.files = by_place.into_values().collect();
    Some(driver)
}
