//! The libraries in the container's driver directories.
//!
//! Such a directory is often the image's own library directory as well, with thousands of files. What an engine mounted
//! there (config.json) is the driver's and is looked into; what the image's cache knows of it stays as its own `ldconfig`
//! left it. Only a directory that is the host's as a whole, or one of which the image's cache knows nothing, is read.

mod look;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::Work;
use crate::error::{Context, Result};
use crate::hook::report::Report;
use crate::ldcache::Entry;
use crate::ldcache::directory::Library;
use crate::oci::Bundle;
use crate::root::{Directory, Listing};
use look::Look;

/// The most names that a directory may have. The largest distribution image has a tenth of it.
const MAX_NAMES: usize = 1 << 16;
/// The most files of the image itself that are looked into. Beyond, its own `ldconfig` should have been run.
const MAX_IMAGE_FILES: usize = 1 << 12;

/// An open directory of libraries.
pub(super) struct Place {
    /// As the container sees it.
    pub(super) path: PathBuf,
    /// Whether every library in it goes before the image's, not just what an engine mounted.
    whole: bool,
    directory: Directory,
    /// Whether the image's cache has a library in it.
    known: bool,
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
    /// What the image's cache has, less what a driver that was replaced left in it: a root that starts again and again
    /// would gather such names.
    pub(super) kept: Vec<Entry<'a>>,
    /// What the image has in a directory of which its cache knows nothing.
    pub(super) image: Vec<Library>,
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
        match bundle.root.readable_directory(path) {
            Ok(directory) => places.push(Place {
                path: path.clone(),
                whole,
                directory,
                known: false,
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
    learn_from_cache(places, existing, bundle).about("container root", "cannot look at directories of libraries")?;
    let mut listings = Vec::new();
    for place in places.iter() {
        let read = || place.directory.entries(MAX_NAMES);
        let listing = (place.whole || !place.known).then(read).transpose();
        listings.push(listing.about(place.path.display(), "cannot read")?);
    }
    let mut found = Gathered {
        driver: Vec::new(),
        kept: keep(places, &listings, existing),
        image: Vec::new(),
    };
    let mut reads = MAX_IMAGE_FILES;
    for (place, listing) in places.iter().zip(&listings) {
        let mut look = Look::new(place, work, bundle, &mut reads);
        match listing {
            Some(listing) => look.at_all_of(listing),
            None => look.at_the_drivers(),
        }
        look.add_to(&mut found);
    }
    if reads == 0 {
        let what =
            format!("more than {MAX_IMAGE_FILES} libraries that the image's ld.so.cache lacks; the rest is left out");
        report.note("container root", what);
    }
    Ok(found)
}

/// The entries of `existing` that are kept.
fn keep<'a>(places: &[Place], listings: &[Option<Listing>], existing: &[Entry<'a>]) -> Vec<Entry<'a>> {
    let names: Vec<Option<HashSet<&OsStr>>> = listings
        .iter()
        .map(|listing| Some(listing.as_ref()?.iter().map(|named| named.name).collect()))
        .collect();
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
        let place = index.and_then(|index| Some((places.get(index)?, names.get(index)?)));
        let is_there = match place {
            None => true,
            Some((_, Some(names))) => names.contains(name),
            Some((place, None)) => !is_left_over(place, entry.soname, name),
        };
        if is_there {
            kept.push(*entry);
        }
    }
    kept
}

/// Whether a driver that was replaced has left this name behind. Its libraries carry its version in their SONAMEs (as
/// `libnvidia-eglcore.so.550.54.14`) and are mounted on empty files, which the runtime makes and leaves.
fn is_left_over(place: &Place, soname: &OsStr, name: &OsStr) -> bool {
    let soname = soname.as_bytes();
    let version = soname.iter().rev().take_while(|c| c.is_ascii_digit() || **c == b'.');
    if version.filter(|c| **c == b'.').count() < 2 {
        return false;
    }
    match place.directory.status(name) {
        Ok(status) => status.is_none_or(|status| status.st_size == 0),
        Err(_) => false,
    }
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

/// Which of the places the cache knows, and by which other paths.
fn learn_from_cache(places: &mut [Place], existing: &[Entry<'_>], bundle: &Bundle) -> std::io::Result<()> {
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
            if *own != identity {
                continue;
            }
            place.known = true;
            if place.path.as_os_str() != parent {
                place.aliases.push(PathBuf::from(parent));
            }
        }
    }
    Ok(())
}
