//! The files in which the broker keeps what it has to know: JSON with the version of its form and a checksum.

use crate::replace::{self, FileOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::path::Path;
use tranche_core::error::{Context, Error, Result};
use tranche_core::sealed;

/// The form of one of the files.
pub struct FileForm {
    /// Its version. Fields are added without a new version.
    pub version: u32,
    /// What is said of a file that does not parse.
    pub invalid: &'static str,
    /// What is to be done with a file that cannot be used.
    pub hint: &'static str,
}

impl FileForm {
    /// The content of the file at `path`; `None` if it does not exist. `version` gives the version that it has.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or was not written by this version of tranche.
    pub fn read<T: DeserializeOwned>(&self, path: &Path, version: impl Fn(&T) -> u32) -> Result<Option<T>> {
        let bytes = match std::fs::read(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.about(path.display(), "cannot be read")?,
        };
        let unusable = |what: &str| Error::failed(path.display(), what).hint(self.hint);
        let content: T = sealed::parse(&bytes).map_err(|e| unusable(self.invalid).from_source(e))?;
        match version(&content) == self.version {
            true => Ok(Some(content)),
            false => Err(unusable("was written by another version of tranche")),
        }
    }

    /// Writes the file, so that a reader finds the old content or the new one.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub fn write(&self, path: &Path, content: &impl Serialize) -> Result<()> {
        replace::write(path, &text(path, content)?)
    }
}

/// Writes a file that is readable for root alone, so that a reader finds the old content or the new one.
///
/// # Errors
/// Returns an error if it cannot be written.
pub fn write_private(path: &Path, content: &impl Serialize) -> Result<()> {
    let options = FileOptions {
        mode: 0o600,
        ..FileOptions::default()
    };
    replace::Prepared::new(path, &text(path, content)?, &options)?.put_in_place()
}

/// Removes such a file. One that does not exist is no error.
///
/// # Errors
/// Returns an error if it cannot be removed.
pub fn remove(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).about(path.display(), "cannot be removed"),
        _ => Ok(()),
    }
}

fn text(path: &Path, content: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string(content).about(path.display(), "cannot be written")?;
    Ok(sealed::seal(&text).into_owned())
}
