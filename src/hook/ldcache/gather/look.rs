//! Looking into a directory: which of its files are libraries, and which of these are the driver's.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{LibraryDirectory, LoaderWork};
use tranche_core::call::KnownLibrary;
use tranche_core::elf;
use tranche_core::ldcache::AbiFlags;
use tranche_core::ldcache::directory::{self, File, NamedLibrary, is_library_name};
use tranche_core::oci::Bundle;
use tranche_core::root::{FileType, Found, Listing, MountOrigin, RuntimeMount};
use tranche_core::types::{ElfClass, Link};

/// The most links that are followed from one name to another.
const MAX_LINKS: usize = 8;

/// One directory, and what is known of the names in it.
pub(super) struct Look<'a> {
    place: &'a LibraryDirectory,
    bundle: &'a Bundle,
    names: BTreeMap<Cow<'a, OsStr>, NameFacts<'a>>,
    /// Whether the directory itself is on the image's mount, so that nothing covers what an engine mounted in it.
    is_uncovered: bool,
    /// The flags of the driver's libraries in it, each once.
    flags: Vec<AbiFlags>,
    /// How many more files of the image may be opened.
    pub(super) reads_left: usize,
}

/// What is known of a name.
#[derive(Default)]
struct NameFacts<'a> {
    /// Whether the listing of the directory has it, as a file, a link, or something that the listing does not
    /// describe.
    is_listed: bool,
    /// Whether the listing says that it is a link.
    is_link: bool,
    /// The bind mount that an engine made on it.
    bound: Option<&'a RuntimeMount>,
    /// Whether that is the only mount on it, and the source has the same name. That is so for the driver's files.
    has_its_name: bool,
    /// The link that was requested.
    link: Option<&'a Link>,
    /// Whether that link is in its place.
    is_in_place: bool,
    /// What the specification says of the library.
    known: Option<&'a KnownLibrary>,
    /// Whether it says two things: the host has a directory for each word size, and the image one for both.
    is_twice: bool,
    /// What was found.
    seen: Option<Seen<'a>>,
}

/// A library that was found.
#[derive(Clone)]
struct Seen<'a> {
    soname: Option<Cow<'a, OsStr>>,
    flags: AbiFlags,
    is_link: bool,
    /// Whether it is the driver's.
    is_driver: bool,
}

impl<'a> Look<'a> {
    /// Collects what is known of the names in `place`. `reads_left` limits how many files of the image are opened.
    pub(super) fn new(
        place: &'a LibraryDirectory,
        work: &LoaderWork<'a>,
        bundle: &'a Bundle,
        reads_left: usize,
    ) -> Self {
        let mut names: BTreeMap<Cow<'_, OsStr>, NameFacts<'_>> = BTreeMap::new();
        for mount in bundle.config.mounts.iter() {
            let Some(text) = place.name_of(&mount.at) else { continue };
            let name = names.entry(text.into()).or_default();
            if name.bound.is_some() {
                name.has_its_name = false;
            } else if mount.origin == MountOrigin::Host {
                let source = mount.source.as_ref().map(|source| source.as_os_str().as_bytes());
                let directory = source.and_then(|source| source.strip_suffix(text.as_bytes()));
                name.has_its_name = directory.is_some_and(|directory| directory.ends_with(b"/"));
                name.bound = Some(mount);
            }
        }
        let in_place = work.in_place.iter().copied().chain(std::iter::repeat(false));
        for (link, is_in_place) in work.links.iter().zip(in_place) {
            if let Some(text) = place.name_of(link.path.as_path()) {
                let name = names.entry(text.into()).or_default();
                (name.link, name.is_in_place) = (Some(link), is_in_place);
            }
        }
        for library in work.libraries {
            if let Some(text) = place.name_of(library.path.as_path()) {
                let name = names.entry(text.into()).or_default();
                name.is_twice |= name.known.is_some_and(|known| known.class != library.class);
                name.known = Some(library);
            }
        }
        Look {
            place,
            bundle,
            names,
            is_uncovered: bundle.root.check_image(&place.directory).is_ok(),
            flags: Vec::new(),
            reads_left,
        }
    }

    /// Looks at every library in `listing`, which is the whole directory.
    pub(super) fn at_all_of(&mut self, listing: &'a Listing) {
        for listed in listing.iter() {
            if !matches!(listed.kind, Some(FileType::Directory | FileType::Other)) {
                let name = self.names.entry(listed.name.into()).or_default();
                (name.is_listed, name.is_link) = (true, listed.kind == Some(FileType::Link));
            }
        }
        self.look_at(|name| name.is_listed);
        self.note_flags();
    }

    fn note_flags(&mut self) {
        for seen in self.names.values().filter_map(|name| name.seen.as_ref()) {
            if seen.is_driver && !self.flags.contains(&seen.flags) {
                self.flags.push(seen.flags);
            }
        }
    }

    /// Looks at what an engine mounted, and at the links by which programs find that.
    pub(super) fn at_the_drivers(&mut self) {
        self.look_at(|name| name.bound.is_some());
        let requested = self.names.iter().filter(|(_, name)| name.link.is_some());
        let mut links: Vec<Cow<'a, OsStr>> = requested.map(|(text, _)| text.clone()).collect();
        if links.is_empty() {
            // Earlier hooks, which another specification asked for, may have made the usual links.
            let sonames = self
                .names
                .values()
                .filter_map(|name| name.seen.as_ref()?.soname.as_deref());
            let usual = sonames.flat_map(|soname| [Some(soname), directory::name_for_linking(soname)]);
            links = usual.flatten().map(|name| Cow::Owned(name.to_owned())).collect();
        }
        for link in links {
            if is_library_name(&link) && self.seen(&link).is_none() {
                self.link(link);
            }
        }
        self.note_flags();
    }

    fn look_at(&mut self, is_wanted: impl Fn(&NameFacts<'a>) -> bool) {
        let (mut files, mut links) = (Vec::new(), Vec::new());
        for (text, name) in &mut self.names {
            if !is_wanted(name) || !is_library_name(text) {
                continue;
            }
            if name.is_link {
                links.push(text.clone());
                continue;
            }
            name.seen = name.known_library(text, self.place, self.is_uncovered);
            if name.seen.is_none() {
                files.push(text.clone());
            }
        }
        for text in files {
            let Ok(file) = self.place.directory.find(&text) else {
                continue;
            };
            match file.kind() {
                FileType::Link => links.push(text),
                _ => {
                    let is_driver = self.place.whole || self.bound(&text).is_some();
                    self.file(text, file, false, is_driver);
                }
            }
        }
        for text in links {
            self.link(text);
        }
    }

    /// Reads a file. A file that is not a library is ignored.
    fn file(&mut self, text: Cow<'a, OsStr>, file: Found, is_link: bool, is_driver: bool) {
        if !is_driver {
            let Some(left) = self.reads_left.checked_sub(1) else {
                return;
            };
            self.reads_left = left;
        }
        let path = match self.bound(&text) {
            Some(mount) => Cow::Borrowed(&*mount.at),
            None => Cow::Owned(self.place.path.join(&*text)),
        };
        // This refuses a file to which a link of the image leads in a volume or in /proc: its SONAME would get into the
        // cache.
        let Ok(open) = self.bundle.root.library(file, &path) else {
            return;
        };
        let Ok(library) = elf::read(open) else { return };
        let Some(flags) = library.flags else { return };
        let seen = Seen {
            soname: library.soname.map(Cow::Owned),
            flags,
            is_link,
            is_driver,
        };
        self.names.entry(text).or_default().seen = Some(seen);
    }

    /// Takes a link to a library beside it as that library under another name. A link that leads elsewhere is followed.
    fn link(&mut self, text: Cow<'a, OsStr>) {
        let Some(mut target) = self.target_of(&text) else {
            return;
        };
        for _ in 0..MAX_LINKS {
            if let Some(seen) = self.seen(&target) {
                let seen = Seen {
                    is_link: true,
                    ..seen.clone()
                };
                self.names.entry(text).or_default().seen = Some(seen);
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
        if let Ok(file) = self.bundle.root.find(&self.place.path.join(&*text)) {
            self.file(text, file, true, self.place.whole);
        }
    }

    fn seen(&self, text: &OsStr) -> Option<&Seen<'a>> {
        self.names.get(text)?.seen.as_ref()
    }

    fn bound(&self, text: &OsStr) -> Option<&'a RuntimeMount> {
        self.names.get(text)?.bound
    }

    /// The text of a link. `None` for anything else.
    fn target_of(&self, text: &OsStr) -> Option<Cow<'a, OsStr>> {
        let name = self.names.get(text).filter(|name| name.is_in_place);
        match name.and_then(|name| name.link) {
            Some(link) => Some(Cow::Borrowed(OsStr::new(&link.target))),
            None => self.place.directory.read_link(text).ok().map(Cow::Owned),
        }
    }

    /// Which of the driver's libraries are covered by those of the other word size, in words; `None` if none is.
    pub(super) fn covered(&self) -> Option<String> {
        let (mut count, mut sizes) = (0, (32, 64));
        for seen in self
            .names
            .values()
            .filter(|name| name.is_twice)
            .filter_map(|name| name.seen.as_ref())
        {
            count += 1;
            // An engine mounts in the order of the paths, so it is the same word size for all.
            if Some(seen.flags) != AbiFlags::of_this_machine(true) {
                sizes = (64, 32);
            }
        }
        if count == 0 {
            return None;
        }
        let (lower, upper) = sizes;
        Some(format!(
            "{count} of the driver's {lower}-bit libraries left out, because the image has one directory for both word \
             sizes, and {upper}-bit ones cover them"
        ))
    }

    /// Whether a library of the driver with other flags than these is at `path`.
    pub(super) fn has_other(&self, path: &Path, flags: AbiFlags) -> bool {
        // The image's cache has thousands of entries, nearly all with the flags of the driver's libraries.
        if self.flags.iter().all(|own| *own == flags) {
            return false;
        }
        let seen = self.place.name_of(path).and_then(|name| self.seen(name));
        seen.is_some_and(|seen| seen.is_driver && seen.flags != flags)
    }

    /// The driver's libraries under the names by which programs ask for them.
    pub(super) fn driver(&self) -> impl Iterator<Item = NamedLibrary<'_>> {
        self.instead_of_links().chain(self.libraries(true))
    }

    /// The image's own libraries under the names by which programs ask for them.
    pub(super) fn image(&self) -> Vec<NamedLibrary<'_>> {
        self.libraries(false)
    }

    fn libraries(&self, is_driver: bool) -> Vec<NamedLibrary<'_>> {
        let file = |(text, name)| {
            let (text, name): (&'_ Cow<'_, OsStr>, &'_ NameFacts<'_>) = (text, name);
            let seen = name.seen.as_ref().filter(|seen| seen.is_driver == is_driver)?;
            Some(File {
                name: text,
                is_link: seen.is_link,
                soname: seen.soname.as_deref(),
                flags: seen.flags,
            })
        };
        let files: Vec<File<'_>> = self.names.iter().filter_map(file).collect();
        directory::libraries(&self.place.path, &files)
    }

    /// For each requested link that could not be made, its name with the path of the library itself.
    fn instead_of_links(&self) -> impl Iterator<Item = NamedLibrary<'_>> {
        let missing = self
            .names
            .iter()
            .filter(|(text, name)| !name.is_in_place && is_library_name(text));
        missing.filter_map(|(text, name)| {
            let mut at = OsStr::new(&name.link?.target);
            for _ in 0..MAX_LINKS {
                match self.names.get(at).and_then(|next| next.link) {
                    Some(next) => at = OsStr::new(&next.target),
                    None => break,
                }
            }
            let flags = self.seen(at)?.flags;
            Some(NamedLibrary::new(text, &self.place.path, at, flags))
        })
    }
}

impl<'a> NameFacts<'a> {
    /// What the specification says of a library that an engine mounted under the name `text`, if it says something.
    ///
    /// A runtime that cannot make a mount does not start the container. So a file of the host that is mounted under its
    /// own name is there, and need not be looked at. Otherwise the user may have mounted something else under this
    /// name, or over the whole directory: then there must be a file with content.
    fn known_library(&self, text: &OsStr, place: &LibraryDirectory, is_uncovered: bool) -> Option<Seen<'a>> {
        // Of two libraries under one name, one covers the other.
        let known = self.known.filter(|_| !self.is_twice)?;
        self.bound?;
        // Without an ABI of this machine, the hook looks into the file.
        let flags = AbiFlags::of_this_machine(known.class == ElfClass::Elf64)?;
        let is_there = is_uncovered && self.has_its_name || {
            let status = place.directory.status(text).ok()??;
            FileType::of(&status) == FileType::File && status.st_size > 0
        };
        is_there.then(|| Seen {
            soname: known.soname.as_deref().map(|soname| Cow::Borrowed(OsStr::new(soname))),
            flags,
            is_link: false,
            is_driver: true,
        })
    }
}
