//! The record of what was taken over: `take-over.json`.

use super::kept::Kept;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tranche_core::bounded;
use tranche_core::error::{Context, Error, Result};
use tranche_core::sealed;
use tranche_state::replace;

/// The version of the form of the record.
const VERSION: u32 = 1;

/// The most bytes that are read.
const MOST_BYTES: u64 = 128 << 20;

/// What was taken over.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    version: u32,
    /// Files that were removed.
    pub(super) files: Vec<Replaced>,
    /// Units that were masked.
    pub(super) units: Vec<MaskedUnit>,
}

/// A path at which something was replaced.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Replaced {
    pub(super) path: PathBuf,
    pub(super) kept: Kept,
}

/// A unit that was masked.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MaskedUnit {
    pub(super) replaced: Replaced,
    /// Whether it was active, and is to be started again.
    pub(super) active: bool,
}

/// Where the record is.
pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join("take-over.json")
}

impl Record {
    /// Reads the record; `None` if the file does not exist.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, or was written by a version of tranche with another form of it.
    pub(super) fn read(path: &Path) -> Result<Option<Self>> {
        let bytes = match File::open(path).and_then(|file| bounded::read(file, MOST_BYTES)) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            bytes => bytes.about(path.display(), "cannot be read")?,
        };
        // One of an earlier version has no checksum, and gets one when it is written next.
        let text = std::str::from_utf8(&bytes).about(path.display(), "is damaged")?;
        let text = sealed::open(text)
            .ok_or_else(|| Error::failed(path.display(), "is damaged: its checksum is of another content"))?;
        let record: Self = serde_json::from_str(&text).about(path.display(), "is damaged")?;
        if record.version != VERSION {
            let what = format!(
                "has version {} of the form, and this tranche knows {VERSION}",
                record.version
            );
            return Err(Error::failed(path.display(), what).hint("use the tranche that wrote it"));
        }
        Ok(Some(record))
    }

    /// # Errors
    /// Returns an error if it cannot be written.
    pub(super) fn write(&mut self, path: &Path) -> Result<()> {
        self.version = VERSION;
        let text = serde_json::to_string(self).about(path.display(), "cannot be written")?;
        replace::write(path, &format!("{}\n", sealed::seal(&text)))
    }

    /// Adds a file. What is there now is what is put back: the other program may have written it again since an earlier
    /// take-over.
    pub(super) fn add(&mut self, path: &Path, kept: Kept) {
        self.files.retain(|file| file.path != path);
        let path = path.to_owned();
        self.files.push(Replaced { path, kept });
    }

    /// Adds a unit that is not masked yet.
    pub(super) fn add_unit(&mut self, path: &Path, kept: Kept, active: bool) {
        // It may have been active when it was masked for the first time, and then unmasked by a person.
        self.units.retain(|unit| unit.replaced.path != path);
        let path = path.to_owned();
        self.units.push(MaskedUnit {
            replaced: Replaced { path, kept },
            active,
        });
    }

    /// Every path at which something was, or is to be, replaced.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        let units = self.units.iter().map(|unit| &unit.replaced);
        self.files.iter().chain(units).map(|replaced| replaced.path.as_path())
    }

    /// The units to be started again.
    pub(super) fn active(&self) -> Vec<PathBuf> {
        let active = self.units.iter().filter(|unit| unit.active);
        active.map(|unit| unit.replaced.path.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is put back is what there was, or nothing is.
    #[test]
    fn a_changed_bit_is_noticed() {
        let top = tempfile::tempdir().unwrap();
        let file = path(top.path());
        let mut record = Record::default();
        record.add(Path::new("/etc/cdi/nvidia.yaml"), Kept::Absent);
        record.write(&file).unwrap();
        let bytes = std::fs::read(&file).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&file, changed).unwrap();
            // White space at the end has no meaning.
            let is_end = bit / 8 + 1 == bytes.len();
            match Record::read(&file) {
                Err(_) => {}
                Ok(read) => assert!(is_end && read.as_ref() == Some(&record), "bit {bit}: {read:?}"),
            }
        }
        let earlier = serde_json::to_string(&record).unwrap();
        std::fs::write(&file, earlier).unwrap();
        assert_eq!(Record::read(&file).unwrap(), Some(record));
    }
}
