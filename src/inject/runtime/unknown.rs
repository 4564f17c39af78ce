//! Options of a start that are not known: a later low-level runtime may start what one of them names. A container that
//! asks for a GPU is not started in such a way without the GPU and its limits.

use super::edit::EditedFile;
use crate::CallingEngine;
use crate::request;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use tranche_core::error::{Error, Result};
use tranche_plan::policy::RuntimeSettings;

/// The directories among the values `unknown` that are bundles.
pub(super) fn bundles(unknown: &[OsString]) -> impl Iterator<Item = &Path> {
    let directories = unknown.iter().map(Path::new);
    directories.filter(|directory| directory.join("config.json").is_file())
}

/// Refuses a start with options of these values if one of them names a configuration other than `edited` whose
/// container asks for something.
///
/// # Errors
/// Returns the refusal.
pub(super) fn refuse_requests(
    unknown: &[OsString],
    edited: &EditedFile,
    settings: &RuntimeSettings,
    caller: CallingEngine,
) -> Result<()> {
    let files = unknown.iter().map(PathBuf::from).filter(|file| file.is_file());
    let configurations = bundles(unknown).map(|bundle| bundle.join("config.json")).chain(files);
    for file in configurations.filter(|file| !edited.is(file)) {
        // What is not a configuration asks for nothing.
        let Ok(bytes) = EditedFile::at(&file).and_then(|file| file.read()) else {
            continue;
        };
        if request::of(&bytes, settings, caller).is_ok_and(|asked| asked.request.is_some()) {
            let what = "its container asks for a device, and is named by an option that this program does not know";
            return Err(Error::failed(file.display(), what)
                .hint("name it with --bundle, or install a version of tranche that knows the option"));
        }
    }
    Ok(())
}
