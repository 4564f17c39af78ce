//! Why `host.json` cannot be used.

use super::HostSource;
use std::path::PathBuf;
use tranche_core::error::Error;
use tranche_core::sealed::SealedError;

/// Why `host.json` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostFileError {
    /// The file does not exist.
    #[error("{}: not found; run tranche cdi refresh", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// Another version of tranche wrote the file, in another form.
    #[error("{}: has the form of another version, tranche {program}; run tranche cdi refresh", path.display())]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// The version that wrote it.
        program: String,
    },
    /// The file is not what tranche writes.
    #[error("{}: is damaged; run tranche cdi refresh", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        error: SealedError,
    },
    /// The file no longer describes the host.
    #[error("{}: is out of date, because {}; run tranche cdi refresh", path.display(), changed.change())]
    Stale {
        /// The file.
        path: PathBuf,
        /// What has changed since it was written.
        changed: HostSource,
        /// The arguments of `tranche cdi refresh` that write it again in the same way.
        arguments: Vec<String>,
    },
    /// The file cannot be read, or another user could have written it. A refresh does not repair that.
    #[error(transparent)]
    Refused(Error),
}

impl HostFileError {
    /// The arguments of the `tranche cdi refresh` that can repair this; `None` if it cannot.
    pub fn repaired_by(&self) -> Option<&[String]> {
        match self {
            Self::Missing { .. } | Self::OtherVersion { .. } | Self::Damaged { .. } => Some(&[]),
            Self::Stale { arguments, .. } => Some(arguments),
            Self::Refused(_) => None,
        }
    }
}
