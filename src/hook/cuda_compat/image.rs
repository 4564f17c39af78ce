//! The compatibility library that an image has, if it is to be used.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::Path;

use super::{Host, NOTE_OWNER, NOTE_SECTION, is_used, version_in_name};
use crate::report::HookReport;
use tranche_core::elf;
use tranche_core::oci::Bundle;
use tranche_core::root::FileType;

/// Where CUDA's images have it.
pub(crate) const DIRECTORY: &str = "/usr/local/cuda/compat";
/// NVIDIA's has a dozen.
const MAX_NAMES: usize = 4096;

/// Whether the libraries in `directory` of the container go before the host's. If that cannot be decided, they do not,
/// and `report` says so. An image without such libraries, or with libraries for other hosts, is not reported.
pub(crate) fn find(directory: &Path, host: &Host, bundle: &Bundle, report: &mut HookReport<'_>) -> bool {
    if host.driver.is_none() && host.cuda.is_none() {
        return false;
    }
    let judged = judge(directory, host, bundle);
    judged.unwrap_or_else(|error| {
        let missing = matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
        if !missing {
            report.note(
                directory.display(),
                format_args!("CUDA forward compatibility is not used: {error}"),
            );
        }
        false
    })
}

fn judge(directory: &Path, host: &Host, bundle: &Bundle) -> std::io::Result<bool> {
    let open = bundle.root.own_directory(directory)?;
    let mut library = None;
    for name in open.names(MAX_NAMES)? {
        let Some(text) = name.to_str().filter(|name| version_in_name(name).is_some()) else {
            continue;
        };
        let found = open.find(OsStr::new(text))?;
        if found.kind() == FileType::File && library.replace((text.to_owned(), found)).is_some() {
            return Err(std::io::Error::other("there are several libcuda"));
        }
    }
    let Some((name, found)) = library else { return Ok(false) };
    // Its note decides about a directory in the image's cache, so the file must be the image's own.
    let file = bundle.root.own(found)?.into_file();
    // A library whose note cannot be read counts as one without: its branch decides.
    let note = elf::note(file, NOTE_SECTION, NOTE_OWNER).unwrap_or_default();
    Ok(is_used(&name, note.as_deref(), host))
}
