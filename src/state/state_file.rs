//! The files in which the broker keeps what it has to know: JSON with the version of its form and a checksum.

use crate::replace::{self, FileOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
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

/// Gives a file of an earlier version a checksum: from then on a bit that changes is noticed. One that does not exist
/// is left alone, and so is one that is no JSON object, of which its reader says what is wrong.
///
/// # Errors
/// Returns an error if the file cannot be read or written. It is as it was then.
pub fn add_checksum(path: &Path) -> Result<()> {
    let text = match std::fs::read_to_string(path) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => return Ok(()),
        read => read.about(path.display(), "cannot be read")?,
    };
    if sealed::is_sealed(&text) || serde_json::from_str::<serde_json::Map<_, _>>(&text).is_err() {
        return Ok(());
    }
    let of_file = std::fs::metadata(path).about(path.display(), "cannot be read")?;
    let options = FileOptions {
        mode: of_file.mode() & 0o777,
        ..FileOptions::default()
    };
    replace::Prepared::new(path, &sealed::seal(&text), &options)?.put_in_place()
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    const FORM: FileForm = FileForm {
        version: 1,
        invalid: "is not valid",
        hint: "remove it",
    };

    #[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Content {
        version: u32,
        devices: Vec<String>,
        #[serde(default)]
        count: u32,
    }

    fn content() -> Content {
        Content {
            version: 1,
            devices: vec!["GPU-1".into(), "GPU-2".into()],
            count: 7,
        }
    }

    /// Every file of this form is read by one function.
    #[test]
    fn a_changed_bit_is_refused_or_changes_nothing() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("x.json");
        FORM.write(&path, &content()).unwrap();
        let bytes = fs::read(&path).unwrap();
        let mut refused = 0;
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, changed).unwrap();
            match FORM.read(&path, |read: &Content| read.version) {
                Err(_) => refused += 1,
                // The name of the checksum, which has no other meaning.
                Ok(read) => assert_eq!(read, Some(content()), "bit {bit}"),
            }
        }
        assert!(refused > bytes.len() * 8 - 100, "{refused} of {}", bytes.len() * 8);
    }

    #[test]
    fn a_file_without_a_checksum_gets_one_and_stays_as_private_as_it_was() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("x.json");
        add_checksum(&path).unwrap();
        assert!(!path.exists());
        fs::write(&path, serde_json::to_string(&content()).unwrap()).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let read = || FORM.read(&path, |read: &Content| read.version).unwrap();
        assert_eq!(read(), Some(content()), "of an earlier version");
        add_checksum(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(sealed::is_sealed(&text), "{text}");
        assert_eq!(read(), Some(content()));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        add_checksum(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text, "once");
        fs::write(&path, "half a file").unwrap();
        add_checksum(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "half a file");
    }
}
