//! A directory while it is looked into: which of its files are libraries, and whose.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::sys::stat::SFlag;

use super::{Gathered, Place, Work, split};
use crate::elf;
use crate::hook::prepare::Library as KnownLibrary;
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
    /// Links that were asked for, by name.
    asked: BTreeMap<&'a OsStr, Asked<'a>>,
    /// What the specification says of libraries, by name.
    known: BTreeMap<&'a OsStr, &'a KnownLibrary>,
    /// What was learnt of each name.
    seen: BTreeMap<Cow<'a, OsStr>, Seen<'a>>,
    /// How many more files of the image may be looked into.
    reads: &'a mut usize,
}

/// A link that was asked for.
#[derive(Clone, Copy)]
struct Asked<'a> {
    target: &'a OsStr,
    /// Whether it is in its place.
    in_place: bool,
}

/// What was learnt of a name.
#[derive(Clone)]
struct Seen<'a> {
    soname: Option<Cow<'a, OsStr>>,
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
            known: known(place, work),
            seen: BTreeMap::new(),
            reads,
        }
    }

    /// Looks at every library of the directory.
    pub(super) fn at_all_of(&mut self, listing: &Listing) {
        let names = listing
            .iter()
            .filter(|named| !matches!(named.kind, Some(Kind::Directory | Kind::Other)))
            .map(|named| (Cow::Owned(named.name.to_owned()), named.kind));
        self.look_at(names.collect());
    }

    /// Looks at what an engine mounted, and at the links by which programs find that.
    pub(super) fn at_the_drivers(&mut self) {
        self.look_at(self.bound.keys().map(|name| (Cow::Borrowed(*name), None)).collect());
        let mut links: BTreeSet<Cow<'a, OsStr>> = self.asked.keys().map(|name| Cow::Borrowed(*name)).collect();
        if links.is_empty() {
            // Those that an earlier hook of another's specification has made.
            for soname in self.seen.values().filter_map(|seen| seen.soname.as_deref()) {
                links.insert(Cow::Owned(soname.to_owned()));
                links.extend(directory::name_for_linking(soname).map(|name| Cow::Owned(name.to_owned())));
            }
        }
        for name in links {
            if is_library_name(&name) && !self.seen.contains_key(&name) {
                self.link(name);
            }
        }
    }

    fn look_at(&mut self, names: Vec<(Cow<'a, OsStr>, Option<Kind>)>) {
        let mut links = Vec::new();
        for (name, kind) in names {
            if !is_library_name(&name) {
                continue;
            }
            if kind == Some(Kind::Link) {
                links.push(name);
                continue;
            }
            if let Some(seen) = self.known_library(&name) {
                self.seen.insert(name, seen);
                continue;
            }
            let Ok(file) = self.place.directory.find(&name) else {
                continue;
            };
            match file.kind() {
                Kind::Link => links.push(name),
                _ => {
                    let driver = self.place.whole || self.bound.contains_key(&*name);
                    self.file(name, file, false, driver);
                }
            }
        }
        for name in links {
            self.link(name);
        }
    }

    /// Takes the specification's word for a library that an engine mounted, if there is such a word. A specification may
    /// be older or newer than the driver, and another mount may lie over the first: so the file must be there, though it
    /// need not be opened.
    fn known_library(&self, name: &OsStr) -> Option<Seen<'a>> {
        let known = self.known.get(name).filter(|_| self.bound.contains_key(name))?;
        let status = self.place.directory.status(name).ok()??;
        let is_file = SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG;
        (is_file && status.st_size > 0).then(|| Seen {
            soname: known.soname.as_deref().map(Cow::Borrowed),
            flags: known.flags,
            is_link: false,
            driver: true,
        })
    }

    /// Looks into a file; what is no library is passed over.
    fn file(&mut self, name: Cow<'a, OsStr>, file: Found, is_link: bool, driver: bool) {
        if !driver {
            if *self.reads == 0 {
                return;
            }
            *self.reads -= 1;
        }
        // Not what a link of the image leads to in a volume or in /proc: its names would get into the cache.
        let path = match self.bound.get(&*name) {
            Some(path) => path.to_path_buf(),
            None => self.place.path.join(&*name),
        };
        let Ok(open) = self.bundle.root.library(file, &path) else {
            return;
        };
        let Ok(library) = elf::read(open) else { return };
        let Some(flags) = library.cache_flags() else { return };
        let soname = library.soname.map(Cow::Owned);
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
    fn link(&mut self, name: Cow<'a, OsStr>) {
        let Some(mut target) = self.target_of(&name) else {
            return;
        };
        for _ in 0..8 {
            if let Some(seen) = self.seen.get(&target) {
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
            match self.target_of(&target) {
                Some(next) => target = next,
                None => break,
            }
        }
        if let Ok(file) = self.bundle.root.find(&self.place.path.join(&*name)) {
            self.file(name, file, true, self.place.whole);
        }
    }

    /// Where a link leads.
    fn target_of(&self, name: &OsStr) -> Option<Cow<'a, OsStr>> {
        match self.asked.get(name) {
            Some(asked) if asked.in_place => Some(Cow::Borrowed(asked.target)),
            _ => self.place.directory.read_link(name).ok().map(Cow::Owned),
        }
    }

    pub(super) fn add_to(&self, found: &mut Gathered<'_, '_>) {
        let (mut driver, mut image) = (Vec::new(), Vec::new());
        for (name, seen) in &self.seen {
            let file = File {
                name: name.clone().into_owned(),
                is_link: seen.is_link,
                soname: seen.soname.clone().map(Cow::into_owned),
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
        for (name, asked) in &self.asked {
            if !is_library_name(name) || asked.in_place {
                continue;
            }
            let mut at = asked.target;
            for _ in 0..8 {
                match self.asked.get(at) {
                    Some(next) => at = next.target,
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

fn asked<'a>(place: &Place, work: &Work<'a>) -> BTreeMap<&'a OsStr, Asked<'a>> {
    let in_place = work.in_place.iter().copied().chain(std::iter::repeat(false));
    let links = work.links.iter().zip(in_place);
    links
        .filter_map(|(link, in_place)| {
            let (parent, name) = split(&link.at);
            let target = link.target.as_os_str();
            place.is(parent).then_some((name, Asked { target, in_place }))
        })
        .collect()
}

fn known<'a>(place: &Place, work: &Work<'a>) -> BTreeMap<&'a OsStr, &'a KnownLibrary> {
    let libraries = work.libraries.iter();
    libraries
        .filter_map(|library| {
            let (parent, name) = split(&library.at);
            place.is(parent).then_some((name, library))
        })
        .collect()
}
