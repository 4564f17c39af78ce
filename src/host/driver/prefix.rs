//! Directories below which a driver is installed as a whole, other than `/` and `/usr`: `PREFIX/lib64`, `PREFIX/bin`,
//! `PREFIX/share`. Systems with a read-only `/usr` have it in `/opt/nvidia/VERSION/KERNEL/usr` or `/var/lib/nvidia`,
//! and name one of its directories: the loader's cache that of the libraries, links in `/opt/bin` that of the programs.

use super::lists;
use super::locate::SearchDir;
use super::search::FoundLibraries;
use crate::scan::Scan;
use crate::tree::TreePath;
use tranche_core::types::HostPath;
use tranche_plan::inventory::HostMount;

/// Names that a directory of libraries has below a prefix.
const LIBRARIES: [&str; 3] = ["lib64", "lib", "lib32"];

/// One such directory.
#[derive(Debug)]
pub(super) struct Prefix<'t> {
    /// A directory of the same tree, with its links followed.
    from: TreePath<'t>,
    /// The way from there: `..`, once or several times.
    up: String,
    /// As the host names it.
    pub(super) host: HostPath,
}

impl<'t> Prefix<'t> {
    /// The prefix of `dir`, which is the directory below it whose name is one of `names`, or one below that. `None` if
    /// that is a directory of the system.
    fn of(dir: TreePath<'t>, names: &[&str]) -> Option<Self> {
        let parts: Vec<&str> = dir.as_str().split('/').skip(1).collect();
        let at = parts.iter().rposition(|part| names.contains(part))?;
        let inner = parts.get(..at)?.join("/");
        if ["", "usr"].contains(&inner.as_str()) {
            return None;
        }
        let up = vec![".."; parts.len() - at].join("/");
        let host = dir.below(&up).ok()?.host();
        Some(Self { from: dir, up, host })
    }

    /// The directory `name` below it, whether it exists or not; without a name the prefix itself.
    pub(super) fn below(&self, name: &str) -> SearchDir<'t> {
        SearchDir {
            host: match name {
                "" => self.host.clone(),
                name => self.host.join(name),
            },
            path: self.from.below(&format!("{}/{name}", self.up)).ok(),
        }
    }
}

/// The prefixes of the directories with the driver's libraries: those that were searched, and those to which their
/// links lead.
pub(super) fn of_libraries<'t>(scan: &Scan<'t>, found: &FoundLibraries<'t>, dirs: &[HostMount]) -> Vec<Prefix<'t>> {
    let has_driver = |name: &str| name.starts_with("libcuda.so.") || name.starts_with("libnvidia-ml.so.");
    let searched = found.listings.iter();
    let searched = searched.filter(|listing| listing.entries.iter().any(|e| has_driver(&e.name)));
    let led_to = dirs.iter().filter_map(|dir| scan.roots.of_host(&dir.host).ok());
    let mut prefixes: Vec<Prefix<'t>> = Vec::new();
    for dir in searched.map(|listing| listing.dir.clone()).chain(led_to) {
        let new = Prefix::of(dir, &LIBRARIES);
        prefixes.extend(new.filter(|new| !prefixes.iter().any(|known| known.host == new.host)));
    }
    prefixes
}

/// The directories of libraries beside the programs, where a link in a directory of programs leads to `nvidia-smi`.
pub(super) fn library_dirs_beside_programs<'t>(scan: &Scan<'t>) -> Vec<TreePath<'t>> {
    let tree = &scan.roots.driver;
    let given = scan.options.program_search_paths.iter();
    let given = given.filter_map(|dir| scan.roots.of_host(dir).ok()?.below(lists::SMI).ok());
    let known = lists::BINARY_DIRS_MOVED.iter();
    let known = known.filter_map(|dir| tree.resolve(&format!("{dir}/{}", lists::SMI)).ok());
    let prefixes = given.chain(known).filter_map(|program| {
        let dir = program.below("..").ok()?;
        Prefix::of(dir, &["bin"])
    });
    let dirs = prefixes.flat_map(|prefix| LIBRARIES.map(|name| prefix.below(name).path));
    dirs.flatten().collect()
}
