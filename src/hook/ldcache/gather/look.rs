//! A directory while it is looked into: which of its files are libraries, and whose.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::sys::stat::SFlag;

use super::{Gathered, Place, Work, split};
use crate::call::KnownLibrary;
use crate::elf;
use crate::ldcache::Flags;
use crate::ldcache::directory::{self, File, Library, is_library_name};
use crate::oci::Bundle;
use crate::root::{Found, Kind, Listing, MountOrigin};
use crate::types::ElfClass;

/// One place while it is looked into.
pub(super) struct Look<'a> {
    place: &'a Place,
    bundle: &'a Bundle,
    /// What is known of names in it before it is looked into.
    names: BTreeMap<&'a OsStr, Name<'a>>,
    /// Whether no mount lies over the directory itself, and so over what an engine mounted in it.
    is_uncovered: bool,
    /// What was learnt of each name.
    seen: BTreeMap<Cow<'a, OsStr>, Seen<'a>>,
    /// How many more files of the image may be looked into.
    reads: &'a mut usize,
}

/// What is known of a name.
#[derive(Default)]
struct Name<'a> {
    /// What of the host an engine mounted on it.
    bound: Option<Bound<'a>>,
    /// The link that was asked for.
    asked: Option<Asked<'a>>,
    /// What the specification says of the library.
    known: Option<&'a KnownLibrary>,
}

/// What an engine mounted on a name.
struct Bound<'a> {
    /// The path at which it did.
    path: &'a Path,
    /// Whether it mounted one thing there, whose own name is this one, as it is of the driver's files.
    has_its_name: bool,
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
            names: names(place, work, bundle),
            is_uncovered: bundle.root.check_image(&place.directory).is_ok(),
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
        let names = self.names.iter();
        let bound = names.filter(|(_, known)| known.bound.is_some());
        self.look_at(bound.map(|(name, _)| (Cow::Borrowed(*name), None)).collect());
        let names = self.names.iter();
        let asked = names.filter(|(_, known)| known.asked.is_some());
        let mut links: Vec<Cow<'a, OsStr>> = asked.map(|(name, _)| Cow::Borrowed(*name)).collect();
        if links.is_empty() {
            // Those that an earlier hook of another's specification has made.
            let mut made = BTreeSet::new();
            for soname in self.seen.values().filter_map(|seen| seen.soname.as_deref()) {
                made.insert(soname.to_owned());
                made.extend(directory::name_for_linking(soname).map(OsStr::to_owned));
            }
            links.extend(made.into_iter().map(Cow::Owned));
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
                    let driver = self.place.whole || self.bound(&name).is_some();
                    self.file(name, file, false, driver);
                }
            }
        }
        for name in links {
            self.link(name);
        }
    }

    /// Takes the specification's word for a library that an engine mounted, if there is such a word.
    ///
    /// A runtime that cannot make a mount does not start the container. So a file of the host that is mounted under its own
    /// name is there, and need not be looked at. Otherwise the user may have mounted something else under this name, or
    /// over the whole directory: then there must be a file with content.
    fn known_library(&self, called: &OsStr) -> Option<Seen<'a>> {
        let name = self.names.get(called)?;
        let (known, bound) = (name.known?, name.bound.as_ref()?);
        // Without an ABI of this machine, the hook looks into the file.
        let flags = Flags::of_this_machine(known.class() == ElfClass::Elf64)?;
        let is_there = self.is_uncovered && bound.has_its_name || {
            let status = self.place.directory.status(called).ok()??;
            SFlag::from_bits_truncate(status.st_mode) & SFlag::S_IFMT == SFlag::S_IFREG && status.st_size > 0
        };
        is_there.then(|| Seen {
            soname: known.soname().map(|soname| Cow::Borrowed(OsStr::new(soname))),
            flags,
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
        let path = match self.bound(&name) {
            Some(bound) => bound.path.to_path_buf(),
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

    fn bound(&self, name: &OsStr) -> Option<&Bound<'a>> {
        self.names.get(name)?.bound.as_ref()
    }

    fn asked(&self, name: &OsStr) -> Option<Asked<'a>> {
        self.names.get(name)?.asked
    }

    /// Where a link leads.
    fn target_of(&self, name: &OsStr) -> Option<Cow<'a, OsStr>> {
        match self.asked(name) {
            Some(asked) if asked.in_place => Some(Cow::Borrowed(asked.target)),
            _ => self.place.directory.read_link(name).ok().map(Cow::Owned),
        }
    }

    pub(super) fn add_to(&self, found: &mut Gathered<'_, '_>) {
        let (mut driver, mut image) = (Vec::new(), Vec::new());
        for (name, seen) in &self.seen {
            let file = File {
                name: Cow::Borrowed(&**name),
                is_link: seen.is_link,
                soname: seen.soname.as_deref().map(Cow::Borrowed),
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
        for (name, known) in &self.names {
            let Some(asked) = known.asked.filter(|asked| !asked.in_place && is_library_name(name)) else {
                continue;
            };
            let mut at = asked.target;
            for _ in 0..8 {
                match self.asked(at) {
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

/// What is known of the names in this directory.
fn names<'a>(place: &Place, work: &Work<'a>, bundle: &'a Bundle) -> BTreeMap<&'a OsStr, Name<'a>> {
    let mut names: BTreeMap<&OsStr, Name<'_>> = BTreeMap::new();
    let name_here = |path: &'a Path| {
        let (parent, name) = split(path);
        (place.is(parent) && !name.is_empty()).then_some(name)
    };
    for mount in bundle.config.mounts.iter() {
        let path = mount.at.as_path();
        let Some(name) = name_here(path) else { continue };
        let bound = &mut names.entry(name).or_default().bound;
        if let Some(first) = bound {
            first.has_its_name = false;
        } else if mount.origin == MountOrigin::Host {
            let source = mount.source.as_deref().map(|source| split(source).1);
            let has_its_name = source == Some(name);
            *bound = Some(Bound { path, has_its_name });
        }
    }
    let in_place = work.in_place.iter().copied().chain(std::iter::repeat(false));
    for (link, in_place) in work.links.iter().zip(in_place) {
        if let Some(name) = name_here(link.path.as_path()) {
            let target = OsStr::new(&link.target);
            names.entry(name).or_default().asked = Some(Asked { target, in_place });
        }
    }
    for library in work.libraries {
        if let Some(name) = name_here(library.path().as_path()) {
            names.entry(name).or_default().known = Some(library);
        }
    }
    names
}
