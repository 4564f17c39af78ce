//! The driver's libraries, with the links under which programs look for them.

use super::lists;
use super::search::{Found, Listing};
use crate::elf;
use crate::host::tree::{Entry, Tree};
use crate::host::{Options, Roots};
use crate::inventory::{DriverCapability, DriverFile, ElfClass, FileKind, Inventory, LibraryDir, Link};
use crate::types::{ContainerPath, DriverVersion};
use std::collections::BTreeMap;

/// Libraries by their path on the host, and the directories that a loader has to know.
#[derive(Debug, Default)]
pub(super) struct Libraries {
    pub files: BTreeMap<String, DriverFile>,
    pub dirs: Vec<LibraryDir>,
}

/// A name that the lists or the version say is the driver's.
struct Wanted<'a> {
    stem: &'a str,
    capability: DriverCapability,
    own_version: bool,
}

pub(super) fn collect(
    roots: &Roots,
    options: &Options,
    found: &Found<'_>,
    version: &DriverVersion,
    inventory: &mut Inventory,
) -> Libraries {
    let mut reader = Reader {
        compat32: options.compat32,
        explicit: options.explicit_libraries,
        version,
        inventory,
        libraries: Libraries::default(),
    };
    let mut dirs: [Vec<LibraryDir>; 2] = Default::default();
    for listing in &found.listings {
        reader.directory(listing, Some(&mut dirs));
        if listing.entries.iter().any(|e| e.is_dir && e.name == "vdpau") {
            let dir = format!("{}/vdpau", listing.dir);
            let tree = listing.tree;
            if let Ok(entries) = tree.list(&dir) {
                // VDPAU opens its back ends by path: the loader need not know this directory.
                reader.directory(&Listing { tree, dir, entries }, None);
            }
        }
    }
    // A loader takes the first directory that has a name; it skips libraries of another class.
    for dir in dirs.concat() {
        if !reader.libraries.dirs.contains(&dir) {
            reader.libraries.dirs.push(dir);
        }
    }
    reader.xorg(&roots.driver, &found.listings);
    reader.keep_newest();
    reader.note_absent(found);
    reader.libraries
}

struct Reader<'a> {
    compat32: bool,
    explicit: bool,
    version: &'a DriverVersion,
    inventory: &'a mut Inventory,
    libraries: Libraries,
}

impl Reader<'_> {
    fn wanted<'n>(&self, name: &'n str) -> Option<Wanted<'n>> {
        self.of_driver(name).or_else(|| self.of_others(name))
    }

    /// A library of GLVND or OpenCL's loader, whose version is its own, where those were asked for.
    fn of_others<'n>(&self, name: &'n str) -> Option<Wanted<'n>> {
        let (stem, tail) = name.split_once(".so")?;
        let (_, capability) = lists::EXPLICIT.iter().find(|(known, _)| *known == stem)?;
        let is_version = tail.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        (self.explicit && is_version).then_some(Wanted {
            stem,
            capability: *capability,
            own_version: true,
        })
    }

    fn of_driver<'n>(&self, name: &'n str) -> Option<Wanted<'n>> {
        let (stem, tail) = name.split_once(".so.")?;
        let known = lists::LIBRARIES.iter().find(|l| l.stem == stem);
        let own_version = known.is_some_and(|l| l.own_version);
        let is_numbers = tail.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let takes = tail == self.version.as_str() || (own_version && is_numbers);
        takes.then(|| Wanted {
            stem,
            capability: known.map_or(lists::UNKNOWN, |l| l.capability),
            own_version,
        })
    }

    /// Takes what is wanted of a directory. `dirs` gets the directories of 64-bit and of 32-bit libraries.
    fn directory(&mut self, listing: &Listing<'_>, mut dirs: Option<&mut [Vec<LibraryDir>; 2]>) {
        for entry in listing.entries.iter().filter(|e| !e.is_dir) {
            let Some(wanted) = self.wanted(&entry.name) else {
                continue;
            };
            let Some(path) = self.resolve(listing, entry) else {
                continue;
            };
            let host = listing.tree.host(&path);
            if !self.libraries.files.contains_key(host.as_str()) {
                let Some(file) = self.file(listing.tree, &path, &wanted, Some(listing)) else {
                    continue;
                };
                self.libraries.files.insert(host.as_str().to_owned(), file);
            }
            let is_32 = self
                .libraries
                .files
                .get(host.as_str())
                .is_some_and(|f| f.capability == DriverCapability::Compat32);
            // A package of its own version may sit in any directory: it makes none a directory of the driver.
            if let Some(dirs) = dirs.as_deref_mut()
                && !wanted.own_version
            {
                let dirs = &mut dirs[usize::from(is_32)];
                if let Ok(container) = ContainerPath::new(&path).map(|p| p.parent()) {
                    let host = host.parent();
                    let dir = LibraryDir { host, container };
                    if !dirs.contains(&dir) {
                        dirs.push(dir);
                    }
                }
            }
        }
    }

    /// Where an entry leads; the directory's own links are resolved already.
    fn resolve(&mut self, listing: &Listing<'_>, entry: &Entry) -> Option<String> {
        let path = format!("{}/{}", listing.dir.trim_end_matches('/'), entry.name);
        if !entry.is_link {
            return Some(path);
        }
        match listing.tree.resolve(&path) {
            Ok(path) => Some(path),
            Err(e) => {
                self.inventory
                    .warn(listing.tree.host(&path), format!("leads nowhere and is left out: {e}"));
                None
            }
        }
    }

    /// One library, if it is one and for programs that we serve.
    fn file(
        &mut self,
        tree: &Tree,
        path: &str,
        wanted: &Wanted<'_>,
        listing: Option<&Listing<'_>>,
    ) -> Option<DriverFile> {
        let host = tree.host(path);
        let library = match tree.open_resolved(path) {
            Ok(file) => elf::read(file).map_err(|e| e.to_string()),
            Err(e) => Err(format!("cannot be read: {e}")),
        };
        let library = match library {
            Ok(library) => library,
            Err(why) => {
                self.inventory
                    .warn(host, format!("no library for a container, left out: {why}"));
                return None;
            }
        };
        let (class, capability) = match (library.is_64, self.compat32) {
            (true, _) => (ElfClass::Elf64, wanted.capability),
            (false, true) => (ElfClass::Elf32, DriverCapability::Compat32),
            (false, false) => return None,
        };
        let soname = library.soname.and_then(|s| s.into_string().ok());
        let container = ContainerPath::new(path).ok()?;
        let links = self.links(tree, &container, wanted.stem, soname.as_deref(), listing);
        Some(DriverFile {
            host,
            container,
            kind: FileKind::Library { soname, class },
            capability,
            links,
        })
    }

    fn links(
        &self,
        tree: &Tree,
        library: &ContainerPath,
        stem: &str,
        soname: Option<&str>,
        listing: Option<&Listing<'_>>,
    ) -> Vec<Link> {
        let dir = library.parent();
        let name = library.file_name();
        let mut links = BTreeMap::new();
        if let Some(soname) = soname.filter(|s| *s != name) {
            links.insert(dir.join(soname), name.to_owned());
        }
        let plain = format!("{stem}.so");
        let has_plain = match listing.filter(|l| l.dir == dir.as_str()) {
            Some(listing) => listing.has(&plain),
            None => tree.lstat(dir.join(&plain).as_str()).is_ok(),
        };
        if has_plain && plain != name {
            links.insert(dir.join(&plain), soname.unwrap_or(name).to_owned());
        }
        for (_, path, target) in lists::LINKS.iter().filter(|(of, _, _)| *of == stem) {
            links.insert(dir.join(path), target.replace("{version}", self.version.as_str()));
        }
        links.into_iter().map(|(path, target)| Link { path, target }).collect()
    }

    /// The X server's modules, each from the first directory that has it.
    fn xorg(&mut self, driver: &Tree, listings: &[Listing<'_>]) {
        let bases = listings
            .iter()
            .map(|l| (l.tree, l.dir.as_str()))
            .chain(lists::XORG_BASES.iter().map(|base| (driver, *base)));
        let dirs: Vec<(&Tree, String)> = bases
            .flat_map(|(tree, base)| {
                let below = lists::XORG_DIRS.iter();
                below.map(move |below| (tree, format!("{base}/{below}")))
            })
            .filter(|(tree, dir)| tree.is_dir(dir))
            .collect();
        for (name, capability) in lists::XORG_MODULES {
            let name = name.replace("{version}", self.version.as_str());
            let (stem, _) = name.split_once(".so").unwrap_or((name.as_str(), ""));
            let wanted = Wanted {
                stem,
                capability: *capability,
                own_version: false,
            };
            let hit = dirs
                .iter()
                .find_map(|(tree, dir)| Some((*tree, tree.resolve(&format!("{dir}/{name}")).ok()?)));
            match hit {
                Some((tree, path)) => {
                    if let Some(file) = self.file(tree, &path, &wanted, None) {
                        self.libraries.files.insert(file.host.as_str().to_owned(), file);
                    }
                }
                None => {
                    let looked_in = dirs.iter().map(|(tree, dir)| tree.host(dir).as_str().to_owned());
                    self.inventory.absent(&name, looked_in);
                }
            }
        }
    }

    /// Of two versions of one library in one directory the newest: both would want the same link.
    fn keep_newest(&mut self) {
        let key = |f: &DriverFile| {
            let (stem, _) = f.container.file_name().split_once(".so.")?;
            Some((f.container.parent(), stem.to_owned()))
        };
        let number = |name: &str| -> Vec<u64> {
            let tail = name.split_once(".so.").map_or("", |(_, tail)| tail);
            tail.split('.').filter_map(|n| n.parse().ok()).collect()
        };
        let mut best: BTreeMap<_, (Vec<u64>, String)> = BTreeMap::new();
        let mut dropped = Vec::new();
        for (path, file) in &self.libraries.files {
            let Some(key) = key(file) else { continue };
            let this = (number(file.container.file_name()), path.clone());
            match best.get_mut(&key) {
                Some(before) if before.0 < this.0 => dropped.push(std::mem::replace(before, this).1),
                Some(_) => dropped.push(this.1),
                None => {
                    best.insert(key, this);
                }
            }
        }
        for path in dropped {
            self.libraries.files.remove(&path);
        }
    }

    fn note_absent(&mut self, found: &Found<'_>) {
        for library in lists::LIBRARIES {
            let prefix = format!("{}.so.", library.stem);
            let is_there = self
                .libraries
                .files
                .values()
                .any(|f| f.container.file_name().starts_with(&prefix));
            if !is_there {
                let tail = if library.own_version {
                    "*"
                } else {
                    self.version.as_str()
                };
                self.inventory
                    .absent(format!("{prefix}{tail}"), found.looked_in.iter().cloned());
            }
        }
    }
}
