//! Makes the image's loader find the driver's libraries, without running the image's `ldconfig` or the host's.
//!
//! glibc's loader finds a library by `/etc/ld.so.cache`. The hook reads the image's cache, puts the driver's libraries
//! before the image's, and replaces the file. An image without a cache gets one with the driver's libraries; the loader
//! still finds the image's own in its default directories. musl's loader searches the directories that a path file
//! names. An image without a loader is not changed.

mod conf;
mod gather;

use std::io::ErrorKind;
use std::path::Path;

use super::loader;
use super::place::Current;
use super::report::HookReport;
use tranche_core::call::KnownLibrary;
use tranche_core::error::{Context, Error, Result, line};
use tranche_core::ldcache::directory::NamedLibrary;
use tranche_core::ldcache::{self, Cache, CacheEntry, Sorted, musl};
use tranche_core::oci::Bundle;
use tranche_core::types::{ContainerPath, Link};

pub(super) use conf::{record_compat, recorded_compat};
use gather::LibraryDirectory;

const CACHE: &str = "/etc/ld.so.cache";
/// musl's path file holds a handful of directories.
const MAX_PATH_FILE: u64 = 64 << 10;

/// The libraries that the loader must find.
pub(super) struct LoaderWork<'a> {
    /// CUDA's compatibility directory in the image, if it goes before the host's libraries.
    pub(super) compat: Option<&'a Path>,
    /// The container's directories with the driver's libraries.
    pub(super) directories: &'a [ContainerPath],
    /// The requested links. If a link could not be made, the cache has its name.
    pub(super) links: &'a [Link],
    /// For each of the links, whether it exists now.
    pub(super) in_place: &'a [bool],
    /// The libraries that the specification describes.
    pub(super) libraries: &'a [KnownLibrary],
}

/// Adds the libraries to the files of the image's loaders.
///
/// # Errors
/// Returns an error if a file of a loader cannot be replaced although the root can be written: the container would
/// start and not find its driver. The file is then unchanged. On a read-only root, a failure is reported instead.
pub(super) fn update(work: &LoaderWork<'_>, bundle: &Bundle, report: &mut HookReport<'_>) -> Result<()> {
    if work.directories.is_empty() && work.compat.is_none() {
        return Ok(());
    }
    let mut places = gather::places(work, bundle, report);
    if places.is_empty() {
        return Ok(());
    }
    if loader::has_glibc(&bundle.root) {
        glibc(work, &mut places, bundle, report)?;
        conf::write(&places, bundle, report);
    }
    for arch in loader::musl(&bundle.root) {
        musl_path(arch, &places, bundle, report)?;
    }
    Ok(())
}

fn glibc(
    work: &LoaderWork<'_>,
    places: &mut [LibraryDirectory],
    bundle: &Bundle,
    report: &mut HookReport<'_>,
) -> Result<()> {
    let path = Path::new(CACHE);
    let now = Current::at(bundle, path, ldcache::MAX_BYTES, report).about(CACHE, "cannot read")?;
    let cache = now.bytes().map(ldcache::read).transpose().unwrap_or_else(|error| {
        // The loader ignores such a cache, too.
        report.note(
            CACHE,
            format_args!("replaced, because it cannot be used: {}", line(&error)),
        );
        None
    });
    let cache = cache.unwrap_or_default();
    if let Some(first) = cache.skipped.first.as_ref().filter(|_| cache.skipped.count > 0) {
        let count = cache.skipped.count;
        report.note(
            CACHE,
            format_args!("{count} of its entries cannot be used and are left out: {first}"),
        );
    }
    let Some(bytes) = merged(work, places, &cache, bundle, report)? else {
        return Ok(());
    };
    let put = now.put(bundle, path, &bytes);
    essential(put, CACHE, now.bytes().is_some(), places, bundle, report)
}

/// The new cache: the driver's libraries, the entries of the image's cache, and libraries of the image that the cache
/// lacks. `None` if there is nothing to add.
fn merged(
    work: &LoaderWork<'_>,
    places: &mut [LibraryDirectory],
    cache: &Cache<'_>,
    bundle: &Bundle,
    report: &mut HookReport<'_>,
) -> Result<Option<Vec<u8>>> {
    let found = gather::libraries(work, places, &cache.entries, bundle, report)?;
    let (driver, image) = (found.driver(), found.image());
    if driver.is_empty() && image.is_empty() {
        return Ok(None);
    }
    let driver: Vec<CacheEntry<'_>> = driver.iter().map(NamedLibrary::entry).collect();
    let image: Vec<CacheEntry<'_>> = image.iter().map(NamedLibrary::entry).collect();
    let mut merged = Sorted::new(&driver).then(Sorted::new(&found.kept));
    if !image.is_empty() {
        merged = merged.then(Sorted::new(&image));
    }
    ldcache::write(&merged, cache.endian).map(Some)
}

fn musl_path(arch: &str, places: &[LibraryDirectory], bundle: &Bundle, report: &mut HookReport<'_>) -> Result<()> {
    let file = musl::path_file(arch);
    let path = Path::new(&file);
    let now = Current::at(bundle, path, MAX_PATH_FILE, report).about(&file, "cannot read")?;
    let directories: Vec<&Path> = places.iter().map(|place| place.path.as_path()).collect();
    let Some(bytes) = musl::with_directories(now.bytes(), &directories)? else {
        return Ok(());
    };
    let put = now.put(bundle, path, &bytes);
    essential(put, &file, now.bytes().is_some(), places, bundle, report)
}

/// Reports a file that cannot be replaced because its place is read-only. Any other failure prevents the start.
fn essential(
    put: std::io::Result<()>,
    file: &str,
    is_there: bool,
    places: &[LibraryDirectory],
    bundle: &Bundle,
    report: &mut HookReport<'_>,
) -> Result<()> {
    let Err(error) = put else { return Ok(()) };
    if !bundle.config.read_only && error.kind() != ErrorKind::ReadOnlyFilesystem {
        return Err(error).about(file, "cannot replace");
    }
    let what = match error.kind() {
        ErrorKind::ReadOnlyFilesystem if bundle.config.read_only => "is missing, and the root is read-only".to_owned(),
        ErrorKind::ReadOnlyFilesystem => {
            "cannot be changed, because it is not on the image's own file system".to_owned()
        }
        _ => format!("cannot be covered on a read-only root: {error}"),
    };
    let directories: Vec<_> = places.iter().map(|place| place.path.display().to_string()).collect();
    // An existing file can be covered, so an image that has one works on a read-only root, too.
    let instead = match bundle.config.read_only && !is_there {
        true => format!(", or add {file} to the image"),
        false => String::new(),
    };
    let hint = format!(
        "set LD_LIBRARY_PATH={} in the container{instead}",
        directories.join(":")
    );
    report.failure(&Error::failed(file, what).hint(hint));
    Ok(())
}
