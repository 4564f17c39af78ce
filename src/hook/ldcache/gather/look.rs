//! A directory while it is looked into: which of its files are libraries, and whose.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{Gathered, Place, Work, split};
use crate::elf;
use crate::ldcache::Flags;
use crate::ldcache::directory::{self, File, Library, is_library_name};
use crate::oci::Bundle;
use crate::root::{Found, Kind, Listing};

/// One place while it is looked into.
pub(super) struct Look<'a> {
    place: &'a Place,
    bundle: &'a Bundle,
    /// Names on which an engine mounted something of the host, with the paths at which it did.
    bound: BTreeMap<&'a OsStr, &'a Path>,
    /// Links that were asked for: name to target.
    asked: BTreeMap<&'a OsStr, &'a OsStr>,
    /// Those that are in their places.
    placed: HashSet<OsString>,
    /// What was learnt of each name.
    seen: BTreeMap<OsString, Seen>,
    /// How many more files of the image may be looked into.
    reads: &'a mut usize,
}

/// What was learnt of a name.
#[derive(Clone)]
struct Seen {
    soname: Option<OsString>,
    flags: Flags,
    is_link: bool,
    /// Whether it is the driver's.
    driver: bool,
}

impl<'a> Look<'a> {
    pub(super) fn new(place: &'a Place, work: &Work<'a>, bundle: &'a Bundle, reads: &'a mut usize) -> Self {
        Look {
            place,
            bundle,
            bound: bound(place, bundle),
            asked: asked(place, work),
            placed: HashSet::new(),
            seen: BTreeMap::new(),
            reads,
        }
    }

    /// Looks at every library of the directory.
    pub(super) fn at_all_of(&mut self, listing: &Listing) {
        let names = listing
            .iter()
            .filter(|named| !matches!(named.kind, Some(Kind::Directory | Kind::Other)))
            .map(|named| (named.name.to_owned(), named.kind));
        self.look_at(names.collect());
    }

    /// Looks at what an engine mounted, and at the links by which programs find that.
    pub(super) fn at_the_drivers(&mut self) {
        self.look_at(self.bound.keys().map(|name| ((*name).to_owned(), None)).collect());
        let mut links: BTreeSet<OsString> = self.asked.keys().map(|name| (*name).to_owned()).collect();
        if links.is_empty() {
            // Those that an earlier hook of another's specification has made.
            for soname in self.seen.values().filter_map(|seen| seen.soname.as_deref()) {
                links.insert(soname.to_owned());
                links.extend(directory::name_for_linking(soname).map(OsStr::to_owned));
            }
        }
        for name in links.iter().filter(|name| is_library_name(name)) {
            if !self.seen.contains_key(name) {
                self.link(name);
            }
        }
    }

    fn look_at(&mut self, names: Vec<(OsString, Option<Kind>)>) {
        let mut links = Vec::new();
        for (name, kind) in names {
            if !is_library_name(&name) {
                continue;
            }
            if kind == Some(Kind::Link) {
                links.push(name);
                continue;
            }
            let Ok(file) = self.place.directory.find(&name) else {
                continue;
            };
            match file.kind() {
                Kind::Link => links.push(name),
                _ => {
                    let driver = self.place.whole || self.bound.contains_key(name.as_os_str());
                    self.file(&name, file, false, driver);
                }
            }
        }
        for name in links {
            self.link(&name);
        }
    }

    /// Looks into a file; what is no library is passed over.
    fn file(&mut self, name: &OsStr, file: Found, is_link: bool, driver: bool) {
        if !driver {
            if *self.reads == 0 {
                return;
            }
            *self.reads -= 1;
        }
        // Not what a link of the image leads to in a volume or in /proc: its names would get into the cache.
        let path = match self.bound.get(name) {
            Some(path) => path.to_path_buf(),
            None => self.place.path.join(name),
        };
        let Ok(open) = self.bundle.root.library(file, &path) else {
            return;
        };
        let Ok(library) = elf::read(open) else { return };
        let Some(flags) = library.cache_flags() else { return };
        let soname = library.soname;
        self.seen.insert(
            name.to_owned(),
            Seen {
                soname,
                flags,
                is_link,
                driver,
            },
        );
    }

    /// A link beside its target is that library under another name; only what leads elsewhere is followed.
    fn link(&mut self, name: &OsStr) {
        let mut target = match self.place.directory.read_link(name) {
            Ok(target) => target,
            Err(_) => return,
        };
        if self.asked.get(name).is_some_and(|asked| *asked == target) {
            self.placed.insert(name.to_owned());
        }
        for _ in 0..8 {
            if let Some(seen) = self.seen.get(target.as_os_str()) {
                let seen = Seen {
                    is_link: true,
                    ..seen.clone()
                };
                self.seen.insert(name.to_owned(), seen);
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
            self.file(name, file, true, self.place.whole);
        }
    }

    pub(super) fn add_to(&self, found: &mut Gathered<'_>) {
        let (mut driver, mut image) = (Vec::new(), Vec::new());
        for (name, seen) in &self.seen {
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
            if !is_library_name(name) || self.placed.contains(*name) {
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
        libraries
    }
}

/// The names in this directory on which an engine mounted something of the host, and the paths that it was given.
fn bound<'a>(place: &Place, bundle: &'a Bundle) -> BTreeMap<&'a OsStr, &'a Path> {
    let mounts = bundle.config.mounts.iter().filter(|mount| mount.bind);
    mounts
        .filter(|mount| place.is(split(&mount.destination).0))
        .filter_map(|mount| Some((mount.destination.file_name()?, mount.destination.as_path())))
        .collect()
}

fn asked<'a>(place: &Place, work: &Work<'a>) -> BTreeMap<&'a OsStr, &'a OsStr> {
    let links = work.links.iter().filter(|link| place.is(split(&link.at).0));
    links
        .filter_map(|link| Some((link.at.file_name()?, link.target.as_os_str())))
        .collect()
}
