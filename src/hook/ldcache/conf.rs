//! Configuration for an `ldconfig` that runs in the container later. It makes the cache from the configured
//! directories, and without this configuration the driver's libraries would not be in it.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::gather::LibraryDirectory;
use crate::place::{self, Current};
use crate::report::HookReport;
use tranche_core::oci::Bundle;
use tranche_core::root::{NotOwn, OwnDirectory};

const MAIN: &str = "/etc/ld.so.conf";
const PARTS: &str = "/etc/ld.so.conf.d";
/// Sorted before the image's own: directories that come first are searched first.
const OURS: &str = "00-tranche.conf";
/// The file of `enable-cuda-compat`, sorted before [`OURS`]. NVIDIA's hook writes one with a random name.
const COMPAT: &str = "00-compat-tranche.conf";
const MAX_FILE: u64 = 64 << 10;
const MAX_FILES: usize = 1024;

/// Directories that every `ldconfig` searches without configuration. Fedora's also searches /lib64 and /usr/lib64,
/// Debian's does not.
const ALWAYS: [&str; 2] = ["/lib", "/usr/lib"];

/// Writes the directories that no other file of the image names. A failure is reported and does not fail the start,
/// because the cache has the libraries already.
pub(super) fn write(places: &[LibraryDirectory], bundle: &Bundle, report: &mut HookReport<'_>) {
    // Nobody can run `ldconfig` on a read-only root.
    if bundle.config.read_only {
        return;
    }
    match write_file(places, bundle, report) {
        Err(e) if e.kind() != ErrorKind::ReadOnlyFilesystem => {
            report.note(PARTS, format_args!("directories of libraries not written: {e}"));
        }
        _ => {}
    }
}

fn write_file(places: &[LibraryDirectory], bundle: &Bundle, report: &mut HookReport<'_>) -> io::Result<()> {
    let directory = match bundle.root.own_directory(Path::new(PARTS)) {
        Ok(directory) => directory,
        // The image has no ldconfig, or one with another configuration.
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    let configured = configured(&directory, bundle, report)?;
    let names = |path: &Path| configured.iter().any(|line| line == path.as_os_str().as_bytes());
    let always = |path: &Path| ALWAYS.iter().any(|always| Path::new(always) == path);
    let mut content = Vec::new();
    for place in places
        .iter()
        .filter(|place| !names(&place.path) && !always(&place.path))
    {
        let line = place.path.as_os_str().as_bytes();
        // These characters end a line, and the format cannot escape them.
        if line
            .iter()
            .any(|byte| matches!(byte, b'\n' | b'#' | b'=' | b' ' | b'\t'))
        {
            continue;
        }
        content.extend_from_slice(line);
        content.push(b'\n');
    }
    let ours = OsStr::new(OURS);
    if content.is_empty() {
        return directory.remove(ours);
    }
    let now = Current::in_directory(bundle, (&directory, Path::new(PARTS)), ours, MAX_FILE, report);
    now.unwrap_or_default()
        .replace(&directory, ours, &content, place::READABLE)
}

/// Stores the directory that `enable-cuda-compat` found, for the `update-ldcache` that follows. `None` removes an
/// earlier one.
pub(crate) fn record_compat(directory: Option<&Path>, bundle: &Bundle, report: &mut HookReport<'_>) {
    if bundle.config.read_only {
        if directory.is_some() {
            report.note("CUDA forward compatibility", "not used: the root is read-only");
        }
        return;
    }
    let path = Path::new(PARTS).join(COMPAT);
    let name = OsStr::new(COMPAT);
    let kept = match directory {
        Some(directory) => {
            let mut content = directory.as_os_str().as_bytes().to_vec();
            content.push(b'\n');
            Current::at(bundle, &path, MAX_FILE, report).and_then(|now| now.put(bundle, &path, &content))
        }
        None => match bundle.root.own_directory(Path::new(PARTS)) {
            Ok(parts) => parts.remove(name),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
            Err(e) => Err(e),
        },
    };
    if let Err(error) = kept {
        report.note(
            path.display(),
            format_args!("CUDA forward compatibility is not changed: {error}"),
        );
    }
}

/// The directory that [`record_compat`] stored.
pub(crate) fn recorded_compat(bundle: &Bundle, report: &mut HookReport<'_>) -> Option<PathBuf> {
    let parts = bundle.root.own_directory(Path::new(PARTS)).ok()?;
    let name = OsStr::new(COMPAT);
    let now = Current::in_directory(bundle, (&parts, Path::new(PARTS)), name, MAX_FILE, report).ok()?;
    let line = now.bytes()?.strip_suffix(b"\n")?;
    let path = Path::new(OsStr::from_bytes(line));
    (path.is_absolute() && !line.contains(&b'\n')).then(|| path.to_path_buf())
}

/// The lines of the image's configuration. Patterns are not expanded, so a directory may be configured twice, which is
/// harmless.
fn configured(directory: &OwnDirectory, bundle: &Bundle, report: &mut HookReport<'_>) -> io::Result<Vec<Vec<u8>>> {
    let mut files = vec![Current::at(bundle, Path::new(MAIN), MAX_FILE, report)?];
    let mut ignored = 0;
    for name in directory.names(MAX_FILES)? {
        if !name.as_bytes().ends_with(b".conf") || name == OURS {
            continue;
        }
        match Current::named(bundle, directory, &name, MAX_FILE) {
            Ok(file) => files.push(file),
            // ldconfig ignores a file that cannot be read, too.
            Err(NotOwn::Unknown(_)) => {}
            Err(_) => ignored += 1,
        }
    }
    if ignored > 0 {
        let what = format!("{ignored} files are ignored, because they are not the image's own");
        report.note(PARTS, what);
    }
    let lines = files
        .iter()
        .flat_map(|file| file.bytes().unwrap_or_default().split(|byte| *byte == b'\n'));
    Ok(lines.map(|line| line.trim_ascii().to_vec()).collect())
}
