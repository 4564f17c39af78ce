//! The libraries in the container's driver directories.
//!
//! Such a directory is often the image's own library directory as well, with thousands of files. Two things tell what of it
//! must be looked into: what an engine mounted there (config.json) is the driver's, and what the image's cache names it
//! need not be told again.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Work;
use crate::elf;
use crate::error::{Context, Result};
use crate::hook::report::Report;
use crate::ldcache::directory::{self, File, Library, is_library_name};
use crate::ldcache::{Entry, Flags};
use crate::oci::Bundle;
use crate::root::{Directory, Found, Kind, Named};

/// The most names that a directory may have. The largest distribution image has a tenth of it.
const MAX_NAMES: usize = 1 << 16;
/// The most files of the image itself that are looked into. Beyond, its own `ldconfig` should have been run.
const MAX_IMAGE_FILES: usize = 1 << 14;

/// An open directory of libraries.
pub(super) struct Place {
    /// As the container sees it.
    pub(super) path: PathBuf,
    /// Whether every library in it goes before the image's, not just what an engine mounted.
    whole: bool,
    directory: Directory,
    /// Other paths of the same directory in the image's cache, such as /lib beside /usr/lib.
    aliases: Vec<PathBuf>,
}

impl Place {
    /// Whether `path` is this directory, by any of its paths.
    fn is(&self, path: &OsStr) -> bool {
        self.path.as_os_str() == path || self.aliases.iter().any(|alias| alias.as_os_str() == path)
    }
}

/// What was found, best first.
pub(super) struct Gathered<'a> {
    /// What the driver brought.
    pub(super) driver: Vec<Library>,
    /// What the image's cache has, less what is in one of the directories by a name that is no longer there: a driver
    /// that was replaced leaves such names in the cache of a root that starts again and again.
    pub(super) kept: Vec<Entry<'a>>,
    /// What the image has and its cache lacks.
    pub(super) image: Vec<Library>,
}

/// The names in a directory.
struct Names<'a> {
    /// Where in the listing each is.
    index: HashMap<&'a OsStr, usize>,
    /// For each of the listing, whether the image's cache has it.
    known: Vec<bool>,
}

impl<'a> Names<'a> {
    fn of(listing: &'a [Named]) -> Self {
        let names = listing.iter().enumerate();
        Names {
            index: names.map(|(at, named)| (named.name.as_os_str(), at)).collect(),
            known: vec![false; listing.len()],
        }
    }

    fn at(&self, name: &OsStr) -> Option<usize> {
        self.index.get(name).copied()
    }

    fn is_known(&self, at: usize) -> bool {
        self.known.get(at).copied().unwrap_or_default()
    }

    /// Marks a name, if it is there.
    fn mark(&mut self, name: &OsStr) -> bool {
        let known = self.at(name).and_then(|at| self.known.get_mut(at));
        known.map(|known| *known = true).is_some()
    }
}

/// Opens the directories of `work` that the container has.
pub(super) fn places(work: &Work<'_>, bundle: &Bundle, report: &mut Report<'_>) -> Vec<Place> {
    let compat = work.compat.iter().map(|path| (path, true));
    let driver = work.directories.iter().map(|path| {
        let whole = bundle.config.is_bound_from_host(path);
        (path, whole)
    });
    let mut places: Vec<Place> = Vec::new();
    for (path, whole) in compat.chain(driver) {
        if places.iter().any(|place| place.path == *path) {
            continue;
        }
        match bundle.root.directory(path) {
            Ok(directory) => places.push(Place {
                path: path.clone(),
                whole,
                directory,
                aliases: Vec::new(),
            }),
            Err(e) if e.kind() == ErrorKind::NotFound => report.note(path.display(), "not in the container, left out"),
            Err(e) => report.note(path.display(), format_args!("left out: {e}")),
        }
    }
    places
}

/// Looks into the places. `existing` is what the image's cache has.
///
/// # Errors
/// If a directory cannot be read, or has more names than any real one.
pub(super) fn libraries<'a>(
    work: &Work<'_>,
    places: &mut [Place],
    existing: &[Entry<'a>],
    bundle: &Bundle,
    report: &mut Report<'_>,
) -> Result<Gathered<'a>> {
    find_aliases(places, existing, bundle).about("container root", "cannot look at directories of libraries")?;
    let mut listings = Vec::new();
    for place in places.iter() {
        listings.push(
            place
                .directory
                .entries(MAX_NAMES)
                .about(place.path.display(), "cannot read")?,
        );
    }
    let mut names: Vec<Names<'_>> = listings.iter().map(|listing| Names::of(listing)).collect();
    let mut found = Gathered {
        driver: Vec::new(),
        kept: keep(places, &mut names, existing),
        image: Vec::new(),
    };
    let mut reads = MAX_IMAGE_FILES;
    for ((place, listing), names) in places.iter().zip(&listings).zip(&names) {
        let mut look = Look {
            place,
            bundle,
            bound: bound(place, bundle),
            asked: asked(place, work),
            names,
            seen: HashMap::new(),
            reads: &mut reads,
        };
        look.files(listing);
        look.add_to(&mut found, listing);
    }
    if reads == 0 {
        let what =
            format!("more than {MAX_IMAGE_FILES} libraries that the image's ld.so.cache lacks; the rest is left out");
        report.note("container root", what);
    }
    Ok(found)
}

/// The entries of `existing` that are kept. Those in one of the places are marked in its names.
fn keep<'a>(places: &[Place], names: &mut [Names<'_>], existing: &[Entry<'a>]) -> Vec<Entry<'a>> {
    let mut kept = Vec::with_capacity(existing.len());
    // Nearly every entry is in the directory of the one before.
    let mut last: Option<(&OsStr, Option<usize>)> = None;
    for entry in existing {
        let (parent, name) = split(entry.path);
        let index = match last {
            Some((path, index)) if path == parent => index,
            _ => places.iter().position(|place| place.is(parent)),
        };
        last = Some((parent, index));
        match index.and_then(|index| names.get_mut(index)) {
            None => kept.push(*entry),
            Some(names) => {
                if names.mark(name) {
                    kept.push(*entry);
                }
            }
        }
    }
    kept
}

/// A path's directory and its last name, as they are written: paths are many here, and Path's own ways are slow.
fn split(path: &Path) -> (&OsStr, &OsStr) {
    let bytes = path.as_os_str().as_bytes();
    let cut = bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    let (directory, name) = bytes.split_at(cut);
    (
        OsStr::from_bytes(directory),
        OsStr::from_bytes(name.get(1..).unwrap_or_default()),
    )
}

/// One place while it is looked into.
struct Look<'a> {
    place: &'a Place,
    bundle: &'a Bundle,
    /// Names that an engine mounted.
    bound: HashSet<&'a OsStr>,
    /// Links that were asked for: name to target.
    asked: HashMap<&'a OsStr, &'a OsStr>,
    names: &'a Names<'a>,
    /// What was learnt of each name.
    seen: HashMap<&'a OsStr, Seen>,
    /// How many more files of the image may be looked into.
    reads: &'a mut usize,
}

#[derive(Clone)]
struct Seen {
    soname: Option<OsString>,
    flags: Flags,
    is_link: bool,
    /// Whether it is the driver's.
    driver: bool,
}

impl<'a> Look<'a> {
    fn files(&mut self, names: &'a [Named]) {
        let mut links = Vec::new();
        for (at, Named { name, kind }) in names
            .iter()
            .enumerate()
            .filter(|(_, named)| is_library_name(&named.name))
        {
            let driver = self.place.whole || self.bound.contains(name.as_os_str());
            let needed = driver || self.asked.contains_key(name.as_os_str()) || !self.is_known(at, name);
            match kind {
                Some(Kind::Directory | Kind::Other) => {}
                _ if !needed => {}
                Some(Kind::Link) => links.push(name.as_os_str()),
                Some(Kind::File) | None => {
                    let Ok(file) = self.place.directory.find(name) else {
                        continue;
                    };
                    match file.kind() {
                        Kind::Link => links.push(name),
                        _ => self.file(name, &file, false, driver),
                    }
                }
            }
        }
        for name in links {
            self.link(name);
        }
    }

    /// What the image's own `ldconfig` saw: this very file, or, for `libz.so.1.3`, the `libz.so.1` that it is behind.
    fn is_known(&self, at: usize, name: &OsStr) -> bool {
        if self.names.is_known(at) {
            return true;
        }
        let bytes = name.as_bytes();
        let Some(version) = bytes.windows(4).position(|w| w == b".so.").map(|at| at + 4) else {
            return false;
        };
        (version..bytes.len())
            .filter(|at| bytes.get(*at) == Some(&b'.'))
            .filter_map(|at| bytes.get(..at))
            .filter_map(|cut| self.names.at(OsStr::from_bytes(cut)))
            .any(|at| self.names.is_known(at))
    }

    /// Looks into a file; what is no library is passed over.
    fn file(&mut self, name: &'a OsStr, file: &Found, is_link: bool, driver: bool) {
        if !driver {
            if *self.reads == 0 {
                return;
            }
            *self.reads -= 1;
        }
        let Ok(open) = file.open() else { return };
        let Ok(library) = elf::read(open) else { return };
        let Some(flags) = library.cache_flags() else { return };
        let soname = library.soname;
        self.seen.insert(
            name,
            Seen {
                soname,
                flags,
                is_link,
                driver,
            },
        );
    }

    /// A link beside its target is that library under another name; only what leads elsewhere is followed.
    fn link(&mut self, name: &'a OsStr) {
        let mut target = match self.place.directory.read_link(name) {
            Ok(target) => target,
            Err(_) => return,
        };
        for _ in 0..8 {
            if let Some(seen) = self.seen.get(target.as_os_str()) {
                let seen = Seen {
                    is_link: true,
                    ..seen.clone()
                };
                self.seen.insert(name, seen);
                return;
            }
            if target.as_bytes().contains(&b'/') {
                break;
            }
            match self.place.directory.read_link(&target) {
                Ok(next) => target = next,
                Err(_) => break,
            }
        }
        if let Ok(file) = self.bundle.root.find(&self.place.path.join(name)) {
            self.file(name, &file, true, self.place.whole);
        }
    }

    fn add_to(&self, found: &mut Gathered<'_>, names: &[Named]) {
        let (mut driver, mut image) = (Vec::new(), Vec::new());
        // In the directory's order: what is learnt of it depends on no table's.
        for Named { name, .. } in names {
            let Some(seen) = self.seen.get(name.as_os_str()) else {
                continue;
            };
            let file = File {
                name: name.clone(),
                is_link: seen.is_link,
                soname: seen.soname.clone(),
                flags: seen.flags,
            };
            if seen.driver { &mut driver } else { &mut image }.push(file);
        }
        found.driver.extend(self.in_place_of_links());
        found.driver.extend(directory::libraries(&self.place.path, &driver));
        found.image.extend(directory::libraries(&self.place.path, &image));
    }

    /// For a link that was asked for and could not be made: its name, with the path of the library itself.
    fn in_place_of_links(&self) -> Vec<Library> {
        let mut libraries = Vec::new();
        for (name, target) in &self.asked {
            if !is_library_name(name) || self.place.directory.read_link(name).is_ok_and(|now| now == *target) {
                continue;
            }
            let mut at = *target;
            for _ in 0..8 {
                match self.asked.get(at) {
                    Some(next) => at = next,
                    None => break,
                }
            }
            if let Some(seen) = self.seen.get(at) {
                libraries.push(Library {
                    soname: (*name).to_os_string(),
                    path: self.place.path.join(at),
                    flags: seen.flags,
                });
            }
        }
        libraries.sort_by(|a, b| a.soname.cmp(&b.soname));
        libraries
    }
}

/// The names in this directory on which an engine mounted something of the host.
fn bound<'a>(place: &Place, bundle: &'a Bundle) -> HashSet<&'a OsStr> {
    let mounts = bundle.config.mounts.iter().filter(|mount| mount.bind);
    mounts
        .filter(|mount| place.is(split(&mount.destination).0))
        .filter_map(|mount| mount.destination.file_name())
        .collect()
}

fn asked<'a>(place: &Place, work: &Work<'a>) -> HashMap<&'a OsStr, &'a OsStr> {
    let links = work.links.iter().filter(|link| place.is(split(&link.at).0));
    links
        .filter_map(|link| Some((link.at.file_name()?, link.target.as_os_str())))
        .collect()
}

fn find_aliases(places: &mut [Place], existing: &[Entry<'_>], bundle: &Bundle) -> std::io::Result<()> {
    let identities = places
        .iter()
        .map(|place| place.directory.identity())
        .collect::<std::io::Result<Vec<_>>>()?;
    let mut looked: HashSet<&OsStr> = HashSet::new();
    // A cache has all libraries of a directory near one another, mostly: the last is nearly always the same.
    let mut last = None;
    for parent in existing.iter().map(|entry| split(entry.path).0) {
        if last == Some(parent) || !looked.insert(parent) {
            continue;
        }
        last = Some(parent);
        // A path that leads nowhere, or is none, is no other path of anything.
        let Ok(directory) = bundle.root.directory(Path::new(parent)) else {
            continue;
        };
        let identity = directory.identity()?;
        for (place, own) in places.iter_mut().zip(&identities) {
            if *own == identity && place.path.as_os_str() != parent {
                place.aliases.push(PathBuf::from(parent));
            }
        }
    }
    Ok(())
}
