//! The driver's libraries, with the links under which programs look for them.

use super::by_soname::Known;
use super::lists;
use super::locate::{SearchDir, locate};
use super::search::{FoundLibraries, LibraryListing};
use crate::scan::Scan;
use crate::tree::TreePath;
use std::collections::BTreeMap;
use tranche_core::elf;
use tranche_core::error::line;
use tranche_core::types::{ContainerPath, DriverVersion, HostPath};
use tranche_plan::inventory::{DriverCapability, DriverFile, ElfClass, FileKind, HostMount, Link};

/// Libraries by their path on the host, and the directories that a loader has to search.
#[derive(Debug, Default)]
pub(super) struct Libraries {
    pub files: BTreeMap<HostPath, DriverFile>,
    pub dirs: Vec<HostMount>,
}

/// A file name that is the name of one of the driver's libraries.
struct Wanted<'n> {
    stem: &'n str,
    capability: DriverCapability,
    own_version: bool,
}

pub(super) fn collect(scan: &Scan<'_>, found: &FoundLibraries<'_>, version: &DriverVersion) -> Libraries {
    let reader = Reader { scan, version };
    let mut files = BTreeMap::new();
    let mut dirs: [Vec<HostMount>; 2] = Default::default();
    // VDPAU opens its back ends by their paths, so the loader does not search these directories.
    let vdpau: Vec<LibraryListing<'_>> = found.listings.iter().filter_map(vdpau).collect();
    let mut every = |known: Option<&Known>| {
        for listing in &found.listings {
            reader.directory(listing, known, &mut files, &mut dirs);
        }
        for listing in &vdpau {
            reader.directory(listing, known, &mut files, &mut Default::default());
        }
        Known::of(files.values(), scan.options.compat32)
    };
    let known = every(None);
    every(Some(&known));
    for file in reader.xorg(&found.listings) {
        files.insert(file.host.clone(), file);
    }
    keep_newest(&mut files);
    note_absent(scan, found, version, &files);
    // A loader takes the first directory that has a name, and skips libraries of another class.
    let mut libraries = Libraries {
        files,
        dirs: Vec::new(),
    };
    for dir in dirs.concat() {
        if !libraries.dirs.contains(&dir) {
            libraries.dirs.push(dir);
        }
    }
    libraries
}

/// The directory `vdpau` of a directory of libraries.
fn vdpau<'t>(listing: &LibraryListing<'t>) -> Option<LibraryListing<'t>> {
    listing.entries.iter().find(|e| e.is_dir && e.name == "vdpau")?;
    let dir = listing.dir.below("vdpau").ok()?;
    let entries = dir.list().ok()?;
    Some(LibraryListing { dir, entries })
}

struct Reader<'a> {
    scan: &'a Scan<'a>,
    version: &'a DriverVersion,
}

impl Reader<'_> {
    fn wanted<'n>(&self, name: &'n str) -> Option<Wanted<'n>> {
        self.of_driver(name).or_else(|| self.of_others(name))
    }

    /// A library of GLVND or OpenCL's loader, which has a version of its own. Only on request.
    fn of_others<'n>(&self, name: &'n str) -> Option<Wanted<'n>> {
        let (stem, tail) = name.split_once(".so")?;
        let (_, capability) = lists::EXPLICIT.iter().find(|(known, _)| *known == stem)?;
        (self.scan.options.explicit_libraries && is_numbers(tail)).then_some(Wanted {
            stem,
            capability: *capability,
            own_version: true,
        })
    }

    fn of_driver<'n>(&self, name: &'n str) -> Option<Wanted<'n>> {
        let (stem, tail) = name.split_once(".so.")?;
        let known = lists::LIBRARIES.iter().find(|l| l.stem == stem);
        let own_version = known.is_some_and(|l| l.own_version);
        let is_wanted = tail == self.version.as_str() || (own_version && is_numbers(tail));
        is_wanted.then(|| Wanted {
            stem,
            capability: known.map_or(lists::UNKNOWN, |l| l.capability),
            own_version,
        })
    }

    /// A library of the driver whose file's name has not the driver's version: some packages install it under its
    /// SONAME. Which file it is decides [`Reader::file`].
    fn by_soname<'n>(&self, name: &'n str, known: &Known) -> Option<Wanted<'n>> {
        let (stem, tail) = name.split_once(".so.")?;
        let library = lists::LIBRARIES.iter().find(|l| l.stem == stem && !l.own_version)?;
        let is_wanted = tail != self.version.as_str() && is_numbers(tail) && !known.has_all(stem);
        is_wanted.then_some(Wanted {
            stem,
            capability: library.capability,
            own_version: false,
        })
    }

    /// Adds the wanted libraries of a directory to `files`, and the directories that they are in to `dirs`: first those
    /// of 64-bit libraries, then those of 32-bit ones. Without `known` they are those whose names say that they are
    /// wanted; with it, those that are known by their SONAMEs and of which `known` has no file.
    fn directory(
        &self,
        listing: &LibraryListing<'_>,
        known: Option<&Known>,
        files: &mut BTreeMap<HostPath, DriverFile>,
        dirs: &mut [Vec<HostMount>; 2],
    ) {
        for entry in listing.entries.iter().filter(|e| !e.is_dir) {
            let wanted = match known {
                None => self.wanted(&entry.name),
                Some(known) => self.by_soname(&entry.name, known),
            };
            let Some(wanted) = wanted else { continue };
            let path = match listing.dir.entry(entry) {
                Ok(path) => path,
                // A link without this driver's version may be left over from an earlier driver.
                Err(_) if known.is_some() => continue,
                Err(e) => {
                    let link = listing.dir.host().join(&entry.name);
                    let text = format!("is a link that leads nowhere and is left out: {e}");
                    self.scan.findings.warn(link, text);
                    continue;
                }
            };
            let host = path.host();
            if !files.contains_key(&host)
                && let Some(file) = self.file(&path, &wanted)
                && known.is_none_or(|known| known.lacks(wanted.stem, &file))
            {
                files.insert(host.clone(), file);
            }
            let Some(file) = files.get_mut(&host) else { continue };
            file.links
                .extend(link_from_above(listing, &entry.name, &file.container));
            // A package with a version of its own may be in any directory, which need not be one of the driver's.
            if !wanted.own_version {
                let dir = HostMount {
                    host: host.parent(),
                    container: file.container.parent(),
                };
                dirs[usize::from(file.capability == DriverCapability::Compat32)].push(dir);
            }
        }
    }

    /// One library, if it is valid and for programs that a container may have.
    fn file(&self, path: &TreePath<'_>, wanted: &Wanted<'_>) -> Option<DriverFile> {
        let library = path
            .open()
            .map_err(|e| format!("cannot be read: {e}"))
            .and_then(|file| elf::read(file).map_err(|e| line(&e)))
            .map_err(|why| {
                let text = format!("is not a library for a container and is left out: {why}");
                self.scan.findings.warn(path.host(), text);
            })
            .ok()?;
        let (class, capability) = match (library.is_64, self.scan.options.compat32) {
            (true, _) => (ElfClass::Elf64, wanted.capability),
            (false, true) => (ElfClass::Elf32, DriverCapability::Compat32),
            (false, false) => return None,
        };
        let soname = library.soname.and_then(|s| s.into_string().ok());
        let own_version = wanted.own_version;
        let stays = soname.as_deref().filter(|_| own_version);
        let stays = stays.and_then(|soname| path.sibling_link(soname));
        let path = stays.as_ref().unwrap_or(path);
        let container = ContainerPath::new(path.as_str()).ok()?;
        Some(DriverFile {
            host: path.host(),
            links: self.links(path, &container, wanted.stem, soname.as_deref()),
            container,
            kind: FileKind::Library {
                soname,
                class,
                own_version,
            },
            capability,
        })
    }

    fn links(&self, path: &TreePath<'_>, library: &ContainerPath, stem: &str, soname: Option<&str>) -> Vec<Link> {
        let dir = library.parent();
        let name = library.file_name();
        let mut links = BTreeMap::new();
        if let Some(soname) = soname.filter(|s| *s != name) {
            links.insert(dir.join(soname), name.to_owned());
        }
        let plain = format!("{stem}.so");
        if plain != name && path.has_sibling(&plain) {
            links.insert(dir.join(&plain), soname.unwrap_or(name).to_owned());
        }
        let (searched, inside) = searched(&dir);
        for (_, link, target) in lists::LINKS.iter().filter(|(of, _, _)| *of == stem) {
            let target = target.replace("{file}", name);
            let (up, file) = target
                .strip_prefix("../")
                .map_or(("", target.as_str()), |file| ("../", file));
            let link = searched.join(link);
            if link != *library {
                links.insert(link, format!("{up}{inside}{file}"));
            }
        }
        links.into_iter().map(|(path, target)| Link { path, target }).collect()
    }

    /// The X server's modules, each from the first directory that has it.
    fn xorg(&self, listings: &[LibraryListing<'_>]) -> Vec<DriverFile> {
        let driver = &self.scan.roots.driver;
        let bases = lists::XORG_BASES.iter().filter_map(|base| driver.resolve(base).ok());
        let bases = listings.iter().map(|l| l.dir.clone()).chain(bases);
        let dirs: Vec<SearchDir<'_>> = bases
            .flat_map(|base| lists::XORG_DIRS.iter().filter_map(move |dir| base.below(dir).ok()))
            .map(|path| SearchDir {
                host: path.host(),
                path: Some(path),
            })
            .collect();
        let mut files = Vec::new();
        for (name, capability) in lists::XORG_MODULES {
            let name = name.replace("{version}", self.version.as_str());
            let (stem, _) = name.split_once(".so").unwrap_or((name.as_str(), ""));
            let wanted = Wanted {
                stem,
                capability: *capability,
                own_version: false,
            };
            // As other libraries, it may lie under its SONAME, which has no version.
            let plain = format!("{stem}.so");
            let found = locate(&dirs, &name, |_, path| path.ok());
            let is_plain = |path: &TreePath<'_>| path.as_str().rsplit('/').next() == Some(plain.as_str());
            match found.or_else(|| locate(&dirs, &plain, |_, path| path.ok().filter(is_plain))) {
                Some(path) => files.extend(self.file(&path, &wanted)),
                None => self.scan.findings.absent(&name, dirs.iter().map(|dir| &dir.host)),
            }
        }
        files
    }
}

/// The directory in which programs look for the links of a library in `dir`, and the way from there to `dir`.
fn searched(dir: &ContainerPath) -> (ContainerPath, &'static str) {
    let above = dir.as_str().strip_suffix(lists::ONE_DRIVER);
    match above.and_then(|above| ContainerPath::new(above).ok()) {
        Some(above) => (above, lists::FROM_ABOVE),
        None => (dir.clone(), ""),
    }
}

/// The link `name` of a directory to a library in a directory below it. Programs may open a library by this name, which
/// is not its SONAME: `libnvidia-nvvm.so.VERSION` (Debian bug 1030336).
fn link_from_above(listing: &LibraryListing<'_>, name: &str, library: &ContainerPath) -> Option<Link> {
    let below = library.below(listing.dir.as_str())?.strip_prefix('/')?;
    let directory = ContainerPath::new(listing.dir.as_str()).ok()?;
    below.contains('/').then(|| Link {
        path: directory.join(name),
        target: below.to_owned(),
    })
}

fn is_numbers(tail: &str) -> bool {
    tail.bytes().all(|b| b.is_ascii_digit() || b == b'.')
}

/// Keeps one of several versions of one library in one directory, because all of them would have the same link: the one
/// to which that link leads on the host, or else the newest.
fn keep_newest(files: &mut BTreeMap<HostPath, DriverFile>) {
    let mut newest = BTreeMap::new();
    for (library, version) in files.values().filter_map(version) {
        let known = newest.entry(library).or_default();
        *known = version.max(std::mem::take(known));
    }
    files.retain(|_, file| version(file).is_none_or(|(library, version)| newest.get(&library) == Some(&version)));
}

/// Whether a file has its SONAME, and its version as numbers, which decide what is newer, and as text.
type FileVersion = (bool, Vec<u64>, String);

/// The directory and the stem of a library, and its version; `None` without a version.
fn version(file: &DriverFile) -> Option<((ContainerPath, String), FileVersion)> {
    let (stem, tail) = file.container.file_name().split_once(".so.")?;
    let numbers = tail.split('.').filter_map(|n| n.parse().ok()).collect();
    let has_soname = matches!(&file.kind, FileKind::Library { soname: Some(soname), own_version: true, .. }
        if soname == file.container.file_name());
    let version = (has_soname, numbers, tail.to_owned());
    Some(((file.container.parent(), stem.to_owned()), version))
}

fn note_absent(
    scan: &Scan<'_>,
    found: &FoundLibraries<'_>,
    version: &DriverVersion,
    files: &BTreeMap<HostPath, DriverFile>,
) {
    for library in lists::LIBRARIES {
        let prefix = format!("{}.so.", library.stem);
        if !files.values().any(|f| f.container.file_name().starts_with(&prefix)) {
            let tail = if library.own_version { "*" } else { version.as_str() };
            scan.findings.absent(format!("{prefix}{tail}"), &found.looked_in);
        }
    }
}
