//! Which directories have the driver's libraries, and of which version they are.

use super::{lists, prefix};
use crate::scan::Scan;
use crate::tree::{Tree, TreeEntry, TreePath, is_absence};
use tranche_core::error::line;
use tranche_core::types::{DriverVersion, HostPath};
use tranche_core::{elf, ldcache};

/// A directory that may have libraries, in the driver's tree or, for a search path outside the driver root, the host's.
#[derive(Debug)]
pub(crate) struct LibraryListing<'t> {
    pub dir: TreePath<'t>,
    /// Its entries that are directories or have `.so` in their names, sorted.
    pub entries: Vec<TreeEntry>,
}

impl LibraryListing<'_> {
    /// Whether the directory has an entry of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.binary_search_by(|e| e.name.as_str().cmp(name)).is_ok()
    }
}

/// The result of the search.
#[derive(Debug, Default)]
pub(crate) struct FoundLibraries<'t> {
    /// Directories, in the order of the search.
    pub listings: Vec<LibraryListing<'t>>,
    /// Every directory that was searched, whether it exists or not.
    pub looked_in: Vec<HostPath>,
    /// The version of the libraries to take.
    pub version: Option<DriverVersion>,
}

/// Searches the directories in the options, or else the known ones, those of the loader's cache, and those beside
/// programs to which links lead.
pub(crate) fn search<'t>(scan: &Scan<'t>) -> FoundLibraries<'t> {
    let roots = scan.roots;
    let mut found = FoundLibraries::default();
    match scan.options.library_search_paths.as_slice() {
        [] => {
            for dir in known_dirs(scan) {
                found.add(scan, roots.driver.host(&dir), roots.driver.resolve(&dir).ok());
            }
            for dir in prefix::library_dirs_beside_programs(scan) {
                found.add(scan, dir.host(), Some(dir));
            }
        }
        given => {
            for dir in given {
                found.add(scan, dir.clone(), roots.of_host(dir).ok());
            }
        }
    }
    found.version = version(&found.listings, scan.module.as_ref());
    found
}

/// The known directories of the driver's tree, and those of its loader's cache.
fn known_dirs(scan: &Scan<'_>) -> Vec<String> {
    let mut dirs: Vec<String> = Vec::new();
    for dir in lists::LIBRARY_DIRS {
        match dir.contains("{arch}") {
            true => dirs.extend(["x86_64", "aarch64"].map(|arch| dir.replace("{arch}", arch))),
            false => dirs.push((*dir).to_owned()),
        }
    }
    dirs.extend(cache_dirs(scan));
    if scan.options.compat32 {
        dirs.extend(lists::LIBRARY_DIRS_32.iter().map(|d| (*d).to_owned()));
    }
    dirs
}

impl<'t> FoundLibraries<'t> {
    /// Adds the directory that the host calls `named`, and its entries if it exists and was not added before.
    fn add(&mut self, scan: &Scan<'t>, named: HostPath, dir: Option<TreePath<'t>>) {
        if !self.looked_in.contains(&named) {
            self.looked_in.push(named);
        }
        let Some(dir) = dir else { return };
        let host = dir.host();
        if self.listings.iter().any(|l| l.dir.host() == host) {
            return;
        }
        match dir.list() {
            Ok(mut entries) => {
                entries.retain(|e| e.is_dir || e.name.contains(".so"));
                self.listings.push(LibraryListing { dir, entries });
            }
            Err(e) if is_absence(&e) => {}
            Err(e) => scan
                .findings
                .warn(host, format!("cannot be searched for libraries: {e}")),
        }
    }
}

/// The version of the libraries: that of the kernel module if there are such libraries, else the newest version in the
/// names of CUDA's or NVML's library. A regular file under the SONAME of one of these two does not say its version, and
/// counts as one of the module's.
fn version(listings: &[LibraryListing<'_>], module: Option<&DriverVersion>) -> Option<DriverVersion> {
    let names = || {
        listings
            .iter()
            .flat_map(|l| l.entries.iter().filter(|e| !e.is_dir).map(|e| e.name.as_str()))
    };
    if let Some(module) = module {
        let suffix = format!(".so.{module}");
        if names().any(|n| n.starts_with("lib") && n.ends_with(&suffix)) {
            return Some(module.clone());
        }
    }
    let of_name = ["libcuda.so.", "libnvidia-ml.so."].iter().find_map(|prefix| {
        names()
            .filter_map(|n| n.strip_prefix(prefix)?.parse::<DriverVersion>().ok())
            .max()
    });
    let is_under_soname =
        |e: &TreeEntry| !e.is_dir && !e.is_link && ["libcuda.so.1", "libnvidia-ml.so.1"].contains(&e.name.as_str());
    let mut entries = listings.iter().flat_map(|l| &l.entries);
    of_name.or_else(|| module.filter(|_| entries.any(is_under_soname)).cloned())
}

/// Directories of the driver's libraries in the loader's cache.
fn cache_dirs(scan: &Scan<'_>) -> Vec<String> {
    const CACHE: &str = "/etc/ld.so.cache";
    const INSTEAD: &str = "only the usual directories are searched for libraries";
    let tree: &Tree = &scan.roots.driver;
    let host = tree.host(CACHE);
    let bytes = match tree.read(CACHE, ldcache::MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(e) => {
            match is_absence(&e) {
                true => scan.findings.absent(CACHE, [&host]),
                false => scan.findings.warn(&host, format!("cannot be read: {e}; {INSTEAD}")),
            }
            return Vec::new();
        }
    };
    let cache = match ldcache::read(&bytes) {
        Ok(cache) => cache,
        Err(e) => {
            scan.findings
                .warn(&host, format!("is not valid: {}; {INSTEAD}", line(&e)));
            return Vec::new();
        }
    };
    if cache.skipped.count > 0 {
        let first = cache.skipped.first.as_deref().unwrap_or("unknown");
        let text = format!(
            "{} entries are not valid and were left out ({first}); run ldconfig",
            cache.skipped.count
        );
        scan.findings.warn(&host, text);
    }
    let mut dirs: Vec<String> = Vec::new();
    for entry in &cache.entries {
        let is_driver = entry
            .soname
            .to_str()
            .is_some_and(|s| s.starts_with("libcuda.so.") || s.starts_with("libnvidia-") || s.contains("_nvidia.so."));
        let dir = entry.path.parent().and_then(|p| p.to_str());
        if let Some(dir) = dir.filter(|dir| is_driver && dir.starts_with('/'))
            && !dirs.iter().any(|d| d == dir)
        {
            dirs.push(dir.to_owned());
        }
    }
    // Far more than a real host has. A hostile cache must not make a discovery search the whole disk.
    dirs.truncate(64);
    dirs
}

/// The library of NVML: of the chosen version if there is one, and for 64-bit programs.
pub(crate) fn nvml<'t>(found: &FoundLibraries<'t>) -> Option<TreePath<'t>> {
    let versioned = found.version.as_ref().map(|v| format!("libnvidia-ml.so.{v}"));
    let names = versioned.iter().map(String::as_str).chain(["libnvidia-ml.so.1"]);
    let is_64 = |path: &TreePath<'_>| path.open().is_ok_and(|file| elf::read(file).is_ok_and(|l| l.is_64));
    names
        .flat_map(|name| found.listings.iter().map(move |listing| (listing, name)))
        .filter(|(listing, name)| listing.has(name))
        .find_map(|(listing, name)| listing.dir.below(name).ok().filter(is_64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing<'t>(tree: &'t Tree, names: &[&str]) -> Vec<LibraryListing<'t>> {
        let mut entries: Vec<TreeEntry> = names
            .iter()
            .map(|n| TreeEntry {
                name: (*n).to_owned(),
                is_link: false,
                is_dir: false,
            })
            .collect();
        entries.sort();
        let dir = tree.resolve("/").unwrap();
        vec![LibraryListing { dir, entries }]
    }

    #[test]
    fn libraries_of_the_module_come_first() {
        let tree = &Tree::new("/", HostPath::root());
        let old: DriverVersion = "550.54.15".parse().unwrap();
        let gone: DriverVersion = "535.1.2".parse().unwrap();
        let both = listing(tree, &["libcuda.so.1", "libcuda.so.550.54.15", "libcuda.so.550.90.07"]);
        assert_eq!(version(&both, Some(&old)), Some(old));
        assert_eq!(version(&both, Some(&gone)).unwrap().as_str(), "550.90.07");
        assert_eq!(version(&both, None).unwrap().as_str(), "550.90.07");
        assert_eq!(version(&listing(tree, &["libcuda.so.1", "libc.so.6"]), None), None);
        assert_eq!(version(&listing(tree, &["libcuda.so.1"]), Some(&gone)), Some(gone));
        assert_eq!(
            version(&listing(tree, &["libnvidia-ml.so.470.1"]), None)
                .unwrap()
                .as_str(),
            "470.1"
        );
    }
}
