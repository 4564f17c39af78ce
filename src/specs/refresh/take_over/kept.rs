//! What was at a path, so that it can be put back exactly.

use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tranche_core::bounded;
use tranche_core::error::{Context, Error, Result};
use tranche_state::replace::{self, FileOptions, Prepared};

/// The most bytes of a file that is kept. A specification of NVIDIA's has less.
const MOST_BYTES: u64 = 16 << 20;

/// What was at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum Kept {
    /// Nothing.
    Absent,
    /// A symbolic link to this path.
    Link(PathBuf),
    /// A regular file.
    File {
        /// Its text.
        text: String,
        /// Its permissions.
        mode: u32,
        /// Its owner and group.
        owner: (u32, u32),
        /// When its text was changed last, since 1970.
        modified: Duration,
    },
}

impl Kept {
    /// What is at `path` now.
    ///
    /// # Errors
    /// Returns an error if it is neither a regular file of text nor a link, or if it cannot be read.
    pub(super) fn at(path: &Path) -> Result<Self> {
        let data = match path.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::Absent),
            data => data.about(path.display(), "cannot be read")?,
        };
        if data.is_symlink() {
            let target = fs::read_link(path).about(path.display(), "cannot be read")?;
            return Ok(Self::Link(target));
        }
        if !data.is_file() {
            return Err(Error::failed(path.display(), "is neither a file nor a link").hint("remove it"));
        }
        let bytes = File::open(path).and_then(|file| bounded::read(file, MOST_BYTES));
        let bytes = bytes.about(path.display(), "cannot be read")?;
        let text = String::from_utf8(bytes).map_err(|_| Error::failed(path.display(), "is not text"))?;
        let modified = data.modified().about(path.display(), "has no time")?;
        Ok(Self::File {
            text,
            mode: data.mode() & 0o7777,
            owner: (data.uid(), data.gid()),
            // A time before 1970 is not kept.
            modified: modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(),
        })
    }

    /// Whether it is the same, whenever it was written.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File { text, .. }, Self::File { text: other, .. }) => text == other,
            _ => self == other,
        }
    }

    /// Puts it at `path`, in the place of whatever is there.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub(super) fn restore(&self, path: &Path) -> Result<()> {
        match self {
            Self::Absent => replace::remove(path),
            Self::Link(target) => replace::link(path, target),
            Self::File {
                text,
                mode,
                owner,
                modified,
            } => {
                let options = FileOptions {
                    mode: *mode,
                    owner: Some(*owner),
                    modified: Some(SystemTime::UNIX_EPOCH + *modified),
                    through: None,
                };
                Prepared::new(path, text, &options)?.put_in_place()
            }
        }
    }
}
