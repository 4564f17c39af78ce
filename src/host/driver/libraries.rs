//! The driver's libraries, with the links under which programs look for them.

use super::lists;
use super::search::{Found, Listing};
use crate::elf;
use crate::host::Options;
use crate::host::tree::{Entry, Tree};
use crate::inventory::{DriverCapability, DriverFile, ElfClass, FileKind, Inventory, LibraryDir, Link};
use crate::types::{ContainerPath, DriverVersion};
use std::collections::BTreeMap;

/// Libraries by path in the driver's tree, and the directories that a loader has to know.
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
    tree: &Tree,
    options: &Options,
    found: &Found,
    version: &DriverVersion,
    inventory: &mut Inventory,
) -> Libraries {
    let mut reader = Reader {
        tree,
        compat32: options.compat32,
        version,
        inventory,
        libraries: Libraries::default(),
    };
    let mut dirs: [Vec<String>; 2] = Default::default();
    for listing in &found.listings {
        reader.directory(listing, Some(&mut dirs));
        if listing.entries.iter().any(|e| e.is_dir && e.name == "vdpau") {
            let dir = format!("{}/vdpau", listing.dir);
            if let Ok(entries) = tree.list(&dir) {
                // VDPAU opens its back ends by path: the loader need not know this directory.
                reader.directory(&Listing { dir, entries }, None);
            }
        }
    }
    // A loader takes the first directory that has a name; it skips libraries of another class.
    for dir in dirs.concat() {
        let pair = (tree.host(&dir), ContainerPath::new(&dir));
        if let (host, Ok(container)) = pair {
            let dir = LibraryDir { host, container };
            if !reader.libraries.dirs.contains(&dir) {
                reader.libraries.dirs.push(dir);
            }
        }
    }
    reader.xorg(&found.listings);
    reader.keep_newest();
    reader.note_absent(found);
    reader.libraries
}

struct Reader<'a> {
    tree: &'a Tree,
    compat32: bool,
    version: &'a DriverVersion,
    inventory: &'a mut Inventory,
    libraries: Libraries,
}

impl Reader<'_> {
    fn wanted<'n>(&self, name: &'n str) -> Option<Wanted<'n>> {
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
    fn directory(&mut self, listing: &Listing, mut dirs: Option<&mut [Vec<String>; 2]>) {
        for entry in listing.entries.iter().filter(|e| !e.is_dir) {
            let Some(wanted) = self.wanted(&entry.name) else {
                continue;
            };
            let Some(path) = self.resolve(listing, entry) else {
                continue;
            };
            if !self.libraries.files.contains_key(&path) {
                let Some(file) = self.file(&path, wanted.stem, wanted.capability, Some(listing)) else {
                    continue;
                };
                self.libraries.files.insert(path.clone(), file);
            }
            let is_32 = self
                .libraries
                .files
                .get(&path)
                .is_some_and(|f| f.capability == DriverCapability::Compat32);
            // A package of its own version may sit in any directory: it makes none a directory of the driver.
            if let Some(dirs) = dirs.as_deref_mut()
                && !wanted.own_version
            {
                let (dir, _) = path.rsplit_once('/').unwrap_or(("", ""));
                let dirs = &mut dirs[usize::from(is_32)];
                if !dirs.iter().any(|d| d == dir) {
                    dirs.push(dir.to_owned());
                }
            }
        }
    }

    /// Where an entry leads; the directory's own links are resolved already.
    fn resolve(&mut self, listing: &Listing, entry: &Entry) -> Option<String> {
        let path = format!("{}/{}", listing.dir.trim_end_matches('/'), entry.name);
        if !entry.is_link {
            return Some(path);
        }
        match self.tree.resolve(&path) {
            Ok(path) => Some(path),
            Err(e) => {
                self.inventory
                    .warn(self.tree.host(&path), format!("leads nowhere and is left out: {e}"));
                None
            }
        }
    }

    /// One library, if it is one and for programs that we serve.
    fn file(
        &mut self,
        path: &str,
        stem: &str,
        capability: DriverCapability,
        listing: Option<&Listing>,
    ) -> Option<DriverFile> {
        let host = self.tree.host(path);
        let library = match self.tree.open_resolved(path) {
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
            (true, _) => (ElfClass::Elf64, capability),
            (false, true) => (ElfClass::Elf32, DriverCapability::Compat32),
            (false, false) => return None,
        };
        let soname = library.soname.and_then(|s| s.into_string().ok());
        let container = ContainerPath::new(path).ok()?;
        let links = self.links(&container, stem, soname.as_deref(), listing);
        Some(DriverFile {
            host,
            container,
            kind: FileKind::Library { soname, class },
            capability,
            links,
        })
    }

    fn links(&self, library: &ContainerPath, stem: &str, soname: Option<&str>, listing: Option<&Listing>) -> Vec<Link> {
        let dir = library.parent();
        let name = library.file_name();
        let mut links = BTreeMap::new();
        if let Some(soname) = soname.filter(|s| *s != name) {
            links.insert(dir.join(soname), name.to_owned());
        }
        let plain = format!("{stem}.so");
        let has_plain = match listing.filter(|l| l.dir == dir.as_str()) {
            Some(listing) => listing.has(&plain),
            None => self.tree.lstat(dir.join(&plain).as_str()).is_ok(),
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
    fn xorg(&mut self, listings: &[Listing]) {
        let bases = listings
            .iter()
            .map(|l| l.dir.as_str())
            .chain(lists::XORG_BASES.iter().copied());
        let dirs: Vec<String> = bases
            .flat_map(|base| lists::XORG_DIRS.iter().map(move |below| format!("{base}/{below}")))
            .filter(|dir| self.tree.is_dir(dir))
            .collect();
        for (name, capability) in lists::XORG_MODULES {
            let name = name.replace("{version}", self.version.as_str());
            let (stem, _) = name.split_once(".so").unwrap_or((name.as_str(), ""));
            let hit = dirs
                .iter()
                .find_map(|dir| self.tree.resolve(&format!("{dir}/{name}")).ok());
            match hit {
                Some(path) => {
                    if let Some(file) = self.file(&path, stem, *capability, None) {
                        self.libraries.files.insert(path, file);
                    }
                }
                None => self
                    .inventory
                    .absent(&name, dirs.iter().map(|d| self.tree.host(d).as_str().to_owned())),
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

    fn note_absent(&mut self, found: &Found) {
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
