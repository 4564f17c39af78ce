//! What is kept beside a changed file: its original bytes, and what was changed.

use super::edit::Edit;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Error, Result};

/// The version of the format below.
const VERSION: u32 = 1;

/// What was done to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Record {
    pub(super) version: u32,
    /// Whether tranche created the file. If not, its original bytes are in the backup.
    pub(super) created: bool,
    /// Whether nobody else had changed the file between two changes by tranche. Then the original bytes can be
    /// restored.
    pub(super) exact: bool,
    /// The SHA-256 digest of what was written.
    pub(super) written: String,
    /// What was changed, in all runs.
    pub(super) edits: Vec<Edit>,
    /// The directories that tranche made for the file, the innermost first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) directories: Vec<PathBuf>,
}

/// Where the backup and the record of a file are.
#[derive(Debug)]
pub(super) struct Beside {
    /// The directory for both, and for temporary files.
    pub(super) directory: PathBuf,
    pub(super) backup: PathBuf,
    pub(super) record: PathBuf,
}

impl Beside {
    /// The places for `file`. CRI-O reads every file in a directory of drop-ins, whatever its name is, so those of a
    /// file in a directory `x.d` are beside that directory.
    pub(super) fn of(file: &Path) -> Self {
        let directory = file.parent().unwrap_or(Path::new("/"));
        let name = file.file_name().unwrap_or_default();
        let mut base = OsString::new();
        let place = match (directory.extension(), directory.parent()) {
            (Some(extension), Some(parent)) if extension == "d" => {
                base.push(directory.file_name().unwrap_or_default());
                base.push(".");
                parent
            }
            _ => directory,
        };
        base.push(name);
        let with = |suffix: &str| {
            let mut name = base.clone();
            name.push(suffix);
            place.join(name)
        };
        Beside {
            directory: place.to_owned(),
            backup: with(".before-tranche"),
            record: with(".tranche.json"),
        }
    }

    /// The record, if the file was changed by tranche.
    ///
    /// # Errors
    /// Returns an error if the record cannot be read, or is of another version.
    pub(super) fn record(&self) -> Result<Option<Record>> {
        let shown = self.record.display();
        let text = match fs::read(&self.record) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::failed(&shown, "cannot be read").from_source(error)),
        };
        let hint = || {
            format!(
                "remove it to forget what was changed; the original file is {}",
                self.backup.display()
            )
        };
        let record: Record = serde_json::from_slice(&text)
            .about(&shown, "is not a record of tranche")
            .map_err(|error| error.hint(hint()))?;
        match record.version {
            VERSION => Ok(Some(record)),
            other => Err(Error::failed(
                &shown,
                format!("is of version {other}, which this tranche does not know"),
            )
            .hint(hint())),
        }
    }

    /// The original bytes of a file that existed before.
    ///
    /// # Errors
    /// Returns an error if the backup cannot be read.
    pub(super) fn original(&self) -> Result<Vec<u8>> {
        fs::read(&self.backup).about(self.backup.display(), "the backup cannot be read")
    }

    /// The text of the record's file.
    ///
    /// # Errors
    /// Returns an error if it cannot be written as JSON.
    pub(super) fn text_of(&self, record: &Record) -> Result<String> {
        let text = serde_json::to_string_pretty(record).about(self.record.display(), "cannot be written")?;
        Ok(text + "\n")
    }

    /// Removes both.
    ///
    /// # Errors
    /// Returns an error if one exists and cannot be removed.
    pub(super) fn remove(&self) -> Result<()> {
        for path in [&self.backup, &self.record] {
            match fs::remove_file(path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(Error::failed(path.display(), "cannot be removed").from_source(error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Record {
    /// The record of a first change.
    pub(super) fn new(created: bool) -> Self {
        Record {
            version: VERSION,
            created,
            exact: true,
            written: String::new(),
            edits: Vec::new(),
            directories: Vec::new(),
        }
    }

    /// Removes the directories that tranche made, unless something else is in them by now.
    pub(super) fn remove_directories(&self) {
        for directory in &self.directories {
            if let Err(error) = fs::remove_dir(directory) {
                tracing::debug!("{}: stays: {error}", directory.display());
                return;
            }
        }
    }

    /// Adds `edits`, which take the place of earlier ones of the same keys.
    pub(super) fn add(&mut self, edits: &[Edit]) {
        for edit in edits {
            self.edits.retain(|earlier| !earlier.is_replaced_by(edit));
            self.edits.push(edit.clone());
        }
    }
}
