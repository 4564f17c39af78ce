//! What the loader of the host gives to programs that ask for the driver's libraries.

use crate::doctor::OtherLibrary;
use std::fs;
use std::path::{Path, PathBuf};
use tranche_core::ldcache::{self, AbiFlags};
use tranche_plan::inventory::Inventory;
use tranche_state::planning::PlanOptions;

/// The libraries by which programs use a GPU, and ask about it.
const SONAMES: [&str; 2] = ["libcuda.so.1", "libnvidia-ml.so.1"];

/// Those of them that are of another driver than that of `inventory`. The loader takes the first entry of its cache,
/// and without a cache the first directory that has the name (ld.so(8)).
pub(super) fn others(inventory: &Inventory, at: &PlanOptions) -> Vec<OtherLibrary> {
    let (Some(driver), None) = (&inventory.driver, &at.host.inventory) else {
        return Vec::new();
    };
    let roots = &at.host.roots;
    let whole = roots.root.as_deref().unwrap_or(Path::new("/"));
    let root = roots.driver_root.as_deref().unwrap_or(whole);
    let below = |root: &Path, path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    // The examination of the host reports a cache that is not valid.
    let bytes = fs::read(root.join("etc/ld.so.cache")).unwrap_or_default();
    let cache = ldcache::read(&bytes).unwrap_or_default();
    let abi = AbiFlags::of_this_machine(true);
    let directories = driver.library_dirs.iter();
    let directories: Vec<PathBuf> = directories.map(|mount| below(whole, mount.host.as_path())).collect();
    let version = driver.version.to_string();
    let found = SONAMES.iter().filter_map(|soname| {
        let mut cached = cache
            .entries
            .iter()
            .filter(|entry| Some(entry.flags) == abi && entry.soname == *soname);
        let in_cache = cached.next().map(|entry| below(root, entry.path));
        let link = in_cache.or_else(|| {
            let mut links = directories.iter().map(|directory| directory.join(soname));
            links.find(|link| link.exists())
        })?;
        let file = link.canonicalize().ok()?;
        // A regular file under this name does not show its version.
        let suffix = file
            .file_name()?
            .to_str()?
            .strip_prefix(soname.strip_suffix('1')?)?
            .to_owned();
        let is_other = suffix != "1" && suffix != version;
        is_other.then_some(OtherLibrary { link, file })
    });
    found.collect()
}
