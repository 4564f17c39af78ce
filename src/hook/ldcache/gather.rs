//! The libraries in the container's driver directories.
//!
//! Such a directory is often the image's own library directory as well, with thousands of files. What an engine mounted
//! there (config.json) is the driver's and is looked into; what the image's cache knows of it stays as its own
//! `ldconfig` left it. Only a directory that is the host's as a whole, or one of which the image's cache knows nothing,
//! is read.

mod look;

use std::borrow::Cow;
// No hash maps: the first of them asks the kernel for random bytes.
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::LoaderWork;
use crate::report::HookReport;
use look::Look;
use tranche_core::error::{Context, Result};
use tranche_core::ldcache::CacheEntry;
use tranche_core::ldcache::directory::NamedLibrary;
use tranche_core::oci::Bundle;
use tranche_core::root::{Directory, Listing};

/// The most names that a directory may have. The largest distribution image has a tenth of it.
const MAX_NAMES: usize = 1 << 16;
/// The most files of the image itself that are looked into. Beyond, its own `ldconfig` should have been run.
const MAX_IMAGE_FILES: usize = 1 << 12;
/// The most directories of the image's cache that are followed to see whether they are one of the driver's. A real
/// cache names a dozen; each costs a look-up of a path that may have 4,095 bytes.
const MAX_DIRECTORIES: usize = 256;

/// An open directory of libraries.
pub(super) struct LibraryDirectory {
    /// As the container sees it.
    pub(super) path: PathBuf,
    /// Whether every library in it goes before the image's, not just what an engine mounted.
    whole: bool,
    directory: Directory,
    /// Whether the image's cache has a library in it.
    is_known: bool,
    /// Other paths of the same directory in the image's cache, such as /lib beside /usr/lib.
    aliases: Vec<PathBuf>,
    /// The names in it, if all of it is looked at.
    listing: Option<Listing>,
}

impl LibraryDirectory {
    /// The name that `path` has in this directory, by any of the directory's paths.
    fn name_of<'p>(&self, path: &'p Path) -> Option<&'p OsStr> {
        self.paths().find_map(|directory| name_in(directory, path))
    }

    /// Whether `other` is the same directory, by whichever path it was opened.
    fn is(&self, other: &Directory) -> bool {
        let both = (self.directory.identity(), other.identity());
        matches!(both, (Ok(own), Ok(other)) if own == other)
    }

    fn paths(&self) -> impl Iterator<Item = &OsStr> {
        [&self.path]
            .into_iter()
            .chain(&self.aliases)
            .map(|path| path.as_os_str())
    }
}

/// What was found. `'e` is the list of what the image's cache has, `'a` the bytes of that cache.
pub(super) struct Gathered<'e, 'a> {
    looks: Vec<Look<'e>>,
    /// What the image's cache has, without what a replaced driver left in it: a root that starts again and again would
    /// gather such names.
    pub(super) kept: Cow<'e, [CacheEntry<'a>]>,
}

impl Gathered<'_, '_> {
    /// Leaves out what the image's cache has under paths at which a library of the driver with another ABI is now: a
    /// loader would open that, and refuse it.
    fn leave_out_other_sizes(&mut self, report: &mut HookReport<'_>) {
        let looks = &self.looks;
        let is_other = |entry: &CacheEntry<'_>| looks.iter().any(|look| look.has_other(entry.path, entry.flags));
        let Some(first) = self.kept.iter().find(|entry| is_other(entry)) else {
            return;
        };
        let (first, before) = (first.path, self.kept.len());
        self.kept.to_mut().retain(|entry| !is_other(entry));
        let what = format_args!(
            "{} of its entries left out, because libraries of the driver with another word size are at these paths: {}",
            before - self.kept.len(),
            first.display(),
        );
        report.note(super::CACHE, what);
    }

    /// The driver's libraries, best first.
    pub(super) fn driver(&self) -> Vec<NamedLibrary<'_>> {
        self.looks.iter().flat_map(Look::driver).collect()
    }

    /// The image's libraries in directories of which its cache knows nothing, best first.
    pub(super) fn image(&self) -> Vec<NamedLibrary<'_>> {
        self.looks.iter().flat_map(Look::image).collect()
    }
}

/// Opens the directories of `work` that the container has.
pub(super) fn places(work: &LoaderWork<'_>, bundle: &Bundle, report: &mut HookReport<'_>) -> Vec<LibraryDirectory> {
    let compat = work.compat.iter().map(|path| (*path, true));
    let driver = work.directories.iter().map(|path| {
        let path = path.as_path();
        let whole = bundle.config.is_bound_from_host(path);
        (path, whole)
    });
    let mut places: Vec<LibraryDirectory> = Vec::new();
    for (path, whole) in compat.chain(driver) {
        if places.iter().any(|place| place.path == path) {
            continue;
        }
        match bundle.root.readable_directory(path) {
            // An image may have one directory where the host has one for each word size.
            Ok(directory) => match places.iter_mut().find(|place| place.is(&directory)) {
                Some(place) => {
                    place.whole |= whole;
                    place.aliases.push(path.to_path_buf());
                }
                None => places.push(LibraryDirectory {
                    path: path.to_path_buf(),
                    whole,
                    directory,
                    is_known: false,
                    aliases: Vec::new(),
                    listing: None,
                }),
            },
            Err(e) if e.kind() == ErrorKind::NotFound => report.note(path.display(), "not in the container, left out"),
            Err(e) => report.note(path.display(), format_args!("left out: {e}")),
        }
    }
    places
}

/// Looks into the places. `existing` is what the image's cache has.
///
/// # Errors
/// Returns an error if a directory cannot be read, or has more names than any real one.
pub(super) fn libraries<'e, 'a>(
    work: &LoaderWork<'e>,
    places: &'e mut [LibraryDirectory],
    existing: &'e [CacheEntry<'a>],
    bundle: &'e Bundle,
    report: &mut HookReport<'_>,
) -> Result<Gathered<'e, 'a>> {
    let runs = runs(existing);
    let identify = |path: &Path| bundle.root.directory(path)?.identity();
    let all =
        learn_from_cache(places, &runs, identify).about("container root", "cannot look at directories of libraries")?;
    if !all {
        let what = format!("the image's ld.so.cache has libraries in more than {MAX_DIRECTORIES} directories");
        report.note("container root", format!("{what}; the rest is taken as it is written"));
    }
    for place in places.iter_mut().filter(|place| place.whole || !place.is_known) {
        let listing = place.directory.entries(MAX_NAMES);
        place.listing = Some(listing.about(place.path.display(), "cannot read")?);
    }
    let mut found = Gathered {
        looks: Vec::with_capacity(places.len()),
        kept: keep(places, existing, &runs),
    };
    let mut reads_left = MAX_IMAGE_FILES;
    for place in &*places {
        let mut look = Look::new(place, work, bundle, reads_left);
        match &place.listing {
            Some(listing) => look.at_all_of(listing),
            None => look.at_the_drivers(),
        }
        reads_left = look.reads_left;
        if let Some(what) = look.covered() {
            report.note(place.path.display(), what);
        }
        found.looks.push(look);
    }
    found.leave_out_other_sizes(report);
    if reads_left == 0 {
        let what =
            format!("more than {MAX_IMAGE_FILES} libraries that the image's ld.so.cache lacks; the rest is left out");
        report.note("container root", what);
    }
    Ok(found)
}

/// Entries of a cache that follow one another and have their libraries in the same directory, by its spelling. A cache
/// of `ldconfig` has few of them; in that of a hostile image every entry may be one.
struct Run<'a> {
    directory: &'a OsStr,
    entries: Range<usize>,
}

fn runs<'a>(entries: &[CacheEntry<'a>]) -> Vec<Run<'a>> {
    let mut runs: Vec<Run<'a>> = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        match runs.last_mut() {
            Some(run) if name_in(run.directory, entry.path).is_some() => run.entries.end = at + 1,
            _ => runs.push(Run {
                directory: directory_of(entry.path),
                entries: at..at + 1,
            }),
        }
    }
    runs
}

/// The directory of `path`, as it is written. Path's own functions are slow, and there are thousands of paths.
fn directory_of(path: &Path) -> &OsStr {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
    OsStr::from_bytes(bytes.split_at(end).0)
}

/// The name of `path` if it is directly in `directory`, as both are written.
fn name_in<'a>(directory: &OsStr, path: &'a Path) -> Option<&'a OsStr> {
    let rest = path.as_os_str().as_bytes().strip_prefix(directory.as_bytes())?;
    let name = rest.strip_prefix(b"/")?;
    (!name.is_empty() && !name.contains(&b'/')).then_some(OsStr::from_bytes(name))
}

/// The entries of `existing` that are kept.
fn keep<'p, 'e, 'a>(
    places: &'p [LibraryDirectory],
    existing: &'e [CacheEntry<'a>],
    runs: &[Run<'a>],
) -> Cow<'e, [CacheEntry<'a>]> {
    let with_names = |place: &'p LibraryDirectory| {
        let names = |listing: &'p Listing| listing.iter().map(|listed| listed.name).collect::<BTreeSet<_>>();
        (place, place.listing.as_ref().map(names))
    };
    let places: Vec<_> = places.iter().map(with_names).collect();
    let mut index = BTreeMap::new();
    for place in &places {
        for path in place.0.paths() {
            index.entry(path).or_insert(place);
        }
    }
    let mut left_out = Vec::new();
    for run in runs {
        let Some((place, names)) = index.get(run.directory) else {
            continue;
        };
        let entries = existing.get(run.entries.clone()).unwrap_or_default();
        for (at, entry) in run.entries.clone().zip(entries) {
            // The run says where the name begins.
            let name = entry.path.as_os_str().as_bytes().get(run.directory.len() + 1..);
            let name = OsStr::from_bytes(name.unwrap_or_default());
            let is_there = match names {
                Some(names) => names.contains(name),
                None => !is_left_over(place, entry.soname, name),
            };
            if !is_there {
                left_out.push(at);
            }
        }
    }
    if left_out.is_empty() {
        return Cow::Borrowed(existing);
    }
    let mut left_out = left_out.into_iter().peekable();
    let kept = existing.iter().enumerate();
    let kept = kept.filter(|(at, _)| left_out.next_if_eq(at).is_none());
    Cow::Owned(kept.map(|(_, entry)| *entry).collect())
}

/// Whether this name was left behind by a driver that was replaced. Its libraries have its version in their SONAMEs
/// (`libnvidia-eglcore.so.550.54.14`) and were mounted on empty files, which the runtime does not remove.
fn is_left_over(place: &LibraryDirectory, soname: &OsStr, name: &OsStr) -> bool {
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

/// Notes which of the places have libraries in the cache, and by which other paths. `identify` follows a path in the
/// root. It is called once for each spelling, at most [`MAX_DIRECTORIES`] times. Returns whether that was enough for
/// all.
///
/// # Errors
/// Returns an error if a place cannot be examined.
fn learn_from_cache(
    places: &mut [LibraryDirectory],
    runs: &[Run<'_>],
    mut identify: impl FnMut(&Path) -> std::io::Result<(u64, u64)>,
) -> std::io::Result<bool> {
    let mut identities: Vec<Option<(u64, u64)>> = vec![None; places.len()];
    let mut looked = BTreeSet::new();
    let mut left = MAX_DIRECTORIES;
    let mut all = true;
    for run in runs {
        // The path by which a place was opened need not be followed again.
        if let Some(place) = places.iter_mut().find(|place| place.path.as_os_str() == run.directory) {
            place.is_known = true;
            continue;
        }
        if !looked.insert(run.directory) {
            continue;
        }
        if left == 0 {
            all = false;
            continue;
        }
        left -= 1;
        // A path that leads nowhere is not a path of any place.
        let Ok(identity) = identify(Path::new(run.directory)) else {
            continue;
        };
        for (place, own) in places.iter_mut().zip(&mut identities) {
            let own = match own {
                Some(own) => own,
                None => own.insert(place.directory.identity()?),
            };
            if *own == identity {
                place.is_known = true;
                place.aliases.push(PathBuf::from(run.directory));
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use tranche_core::ldcache::AbiFlags;
    use tranche_core::root::ContainerRoot;

    #[test]
    fn a_cache_of_many_spellings_is_followed_a_bounded_number_of_times() {
        let top = tempfile::tempdir().unwrap();
        let root = ContainerRoot::from_fd(File::open(top.path()).unwrap().into());
        let mut places = [LibraryDirectory {
            path: "/lib".into(),
            whole: false,
            directory: root.directory(Path::new("/")).unwrap(),
            is_known: false,
            aliases: Vec::new(),
            listing: None,
        }];
        let own = places[0].directory.identity().unwrap();
        let paths: Vec<String> = (0..60_000).map(|n| format!("/{n}/../lib/libx.so")).collect();
        let entry = |path| CacheEntry::new(OsStr::new("libx.so"), path, AbiFlags::X86_64);
        let entries: Vec<CacheEntry<'_>> = paths.iter().map(|path| entry(Path::new(path))).collect();
        let runs = runs(&entries);
        assert_eq!(runs.len(), 60_000);
        let mut followed = 0;
        let enough = learn_from_cache(&mut places, &runs, |_| {
            followed += 1;
            Ok(own)
        });
        assert_eq!((enough.unwrap(), followed), (false, MAX_DIRECTORIES));
        assert!(places[0].is_known);
        assert_eq!(places[0].aliases.len(), MAX_DIRECTORIES);
    }

    #[test]
    fn entries_of_one_directory_are_one_run() {
        let paths = ["/lib/a", "/lib/b", "/lib/x/c", "/lib/d", "e", "/f", "/g"];
        let entries: Vec<CacheEntry<'_>> = paths
            .iter()
            .map(|path| CacheEntry::new(OsStr::new("n"), Path::new(path), AbiFlags::X86_64))
            .collect();
        let runs: Vec<(&OsStr, Range<usize>)> = runs(&entries).into_iter().map(|r| (r.directory, r.entries)).collect();
        let expected = [("/lib", 0..2), ("/lib/x", 2..3), ("/lib", 3..4), ("", 4..7)];
        assert_eq!(runs.len(), 4, "{runs:?}");
        for ((directory, entries), (expected, range)) in runs.into_iter().zip(expected) {
            assert_eq!((directory, entries), (OsStr::new(expected), range));
        }
    }
}
