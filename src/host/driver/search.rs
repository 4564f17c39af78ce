//! Which directories have the driver's libraries, and of which version they are.

use super::lists;
use crate::host::tree::{Entry, Tree, is_absence};
use crate::host::{Options, Roots};
use crate::inventory::Inventory;
use crate::types::{DriverVersion, HostPath};
use crate::{elf, ldcache};

/// A directory with names that may be libraries.
#[derive(Debug)]
pub(crate) struct Listing<'a> {
    /// The tree that the directory is in: the driver's, or the host's for a search path outside the driver root.
    pub tree: &'a Tree,
    /// Its path in the tree, links resolved.
    pub dir: String,
    /// What is in it: names with `.so` in them, and directories.
    pub entries: Vec<Entry>,
}

impl Listing<'_> {
    /// Whether the directory has something of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.binary_search_by(|e| e.name.as_str().cmp(name)).is_ok()
    }
}

/// What the search found.
#[derive(Debug, Default)]
pub(crate) struct Found<'a> {
    /// Directories, in the order of the search.
    pub listings: Vec<Listing<'a>>,
    /// Every place that was looked at, for the record.
    pub looked_in: Vec<String>,
    /// The version of the libraries to take.
    pub version: Option<DriverVersion>,
}

/// Looks through the directories that the options name, or else through the known ones and those of the loader's cache.
pub(crate) fn search<'a>(
    roots: &'a Roots,
    options: &Options,
    module: Option<&DriverVersion>,
    inventory: &mut Inventory,
) -> Found<'a> {
    let mut found = match options.library_search_paths.as_slice() {
        [] => known(roots, options, inventory),
        given => named(roots, given, inventory),
    };
    found.version = version(&found.listings, module);
    found
}

/// The directories that somebody named, as the host names them.
fn named<'a>(roots: &'a Roots, given: &[HostPath], inventory: &mut Inventory) -> Found<'a> {
    let mut found = Found::default();
    for dir in given {
        found.looked_in.push(dir.as_str().to_owned());
        if let Ok((tree, dir)) = roots.of_host(dir) {
            found.add(tree, dir, inventory);
        }
    }
    found
}

/// The known directories of the driver's tree, and those of the loader's cache in it.
fn known<'a>(roots: &'a Roots, options: &Options, inventory: &mut Inventory) -> Found<'a> {
    let tree = &roots.driver;
    let mut dirs: Vec<String> = Vec::new();
    for dir in lists::LIBRARY_DIRS {
        match dir.contains("{arch}") {
            true => dirs.extend(["x86_64", "aarch64"].map(|arch| dir.replace("{arch}", arch))),
            false => dirs.push((*dir).to_owned()),
        }
    }
    dirs.extend(cache_dirs(tree, inventory));
    if options.compat32 {
        dirs.extend(lists::LIBRARY_DIRS_32.iter().map(|d| (*d).to_owned()));
    }
    let mut found = Found::default();
    for dir in dirs {
        let shown = tree.host(&dir).as_str().to_owned();
        if !found.looked_in.contains(&shown) {
            found.looked_in.push(shown);
        }
        if let Ok(dir) = tree.resolve(&dir) {
            found.add(tree, dir, inventory);
        }
    }
    found
}

impl<'a> Found<'a> {
    /// Lists the directory `dir` of `tree`, whose links are resolved, unless it was listed before.
    fn add(&mut self, tree: &'a Tree, dir: String, inventory: &mut Inventory) {
        let host = tree.host(&dir);
        if self.listings.iter().any(|l| l.tree.host(&l.dir) == host) {
            return;
        }
        match tree.list(&dir) {
            Ok(mut entries) => {
                entries.retain(|e| e.is_dir || e.name.contains(".so"));
                self.listings.push(Listing { tree, dir, entries });
            }
            Err(e) if is_absence(&e) => {}
            Err(e) => inventory.warn(host, format!("cannot be searched for libraries: {e}")),
        }
    }
}

/// The version of the libraries: the kernel module's where there are such, else the newest one that CUDA's or NVML's
/// library is named after.
fn version(listings: &[Listing<'_>], module: Option<&DriverVersion>) -> Option<DriverVersion> {
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
    ["libcuda.so.", "libnvidia-ml.so."].iter().find_map(|prefix| {
        names()
            .filter_map(|n| n.strip_prefix(prefix)?.parse::<DriverVersion>().ok())
            .max()
    })
}

/// Directories of the driver's libraries in the loader's cache.
fn cache_dirs(tree: &Tree, inventory: &mut Inventory) -> Vec<String> {
    const CACHE: &str = "/etc/ld.so.cache";
    let mut dirs: Vec<String> = Vec::new();
    let bytes = match tree.read(CACHE, ldcache::MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(e) if is_absence(&e) => {
            inventory.absent(CACHE, [tree.host(CACHE).as_str().to_owned()]);
            return dirs;
        }
        Err(e) => {
            inventory.warn(
                tree.host(CACHE),
                format!("cannot be read: {e}; libraries are looked for in the usual directories alone"),
            );
            return dirs;
        }
    };
    match ldcache::read(&bytes) {
        Ok(cache) => {
            for entry in &cache.entries {
                let is_driver = entry.soname.to_str().is_some_and(|s| {
                    s.starts_with("libcuda.so.") || s.starts_with("libnvidia-") || s.contains("_nvidia.so.")
                });
                let dir = entry.path.parent().and_then(|p| p.to_str());
                if is_driver
                    && let Some(dir) = dir
                    && dir.starts_with('/')
                    && !dirs.iter().any(|d| d == dir)
                {
                    dirs.push(dir.to_owned());
                }
            }
            if cache.skipped.count > 0 {
                let first = cache.skipped.first.as_deref().unwrap_or("unknown");
                inventory.warn(
                    tree.host(CACHE),
                    format!(
                        "{} entries make no sense and were left out ({first}); run ldconfig",
                        cache.skipped.count
                    ),
                );
            }
        }
        Err(e) => inventory.warn(
            tree.host(CACHE),
            format!("makes no sense: {e}; libraries are looked for in the usual directories alone"),
        ),
    }
    // Far more than any real host has: a hostile cache must not make us search the whole disk.
    dirs.truncate(64);
    dirs
}

/// The library of NVML, as a path in the tree that has it: of the chosen version where that is known, and for programs of
/// 64 bits.
pub(crate) fn nvml<'a>(found: &Found<'a>) -> Option<(&'a Tree, String)> {
    let versioned = found.version.as_ref().map(|v| format!("libnvidia-ml.so.{v}"));
    let names = versioned.iter().map(String::as_str).chain(["libnvidia-ml.so.1"]);
    names
        .flat_map(|name| {
            found
                .listings
                .iter()
                .filter(move |l| l.has(name))
                .map(move |l| (l, name))
        })
        .filter_map(|(listing, name)| {
            let path = listing.tree.resolve(&format!("{}/{name}", listing.dir)).ok()?;
            Some((listing.tree, path))
        })
        .find(|(tree, path)| {
            tree.open_resolved(path)
                .is_ok_and(|file| elf::read(file).is_ok_and(|l| l.is_64))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing<'a>(tree: &'a Tree, names: &[&str]) -> Vec<Listing<'a>> {
        let mut entries: Vec<Entry> = names
            .iter()
            .map(|n| Entry {
                name: (*n).to_owned(),
                is_link: false,
                is_dir: false,
            })
            .collect();
        entries.sort();
        vec![Listing {
            tree,
            dir: "/usr/lib64".to_owned(),
            entries,
        }]
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
        assert_eq!(
            version(&listing(tree, &["libnvidia-ml.so.470.1"]), None)
                .unwrap()
                .as_str(),
            "470.1"
        );
    }
}
