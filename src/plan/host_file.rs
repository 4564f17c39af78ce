//! `host.json`: what the host has, the plan for it and the settings of the runtime, in one file of the state directory.
//!
//! `tranche cdi refresh` writes it. The runtime shim and the precreate hook read it at every start of a container, so
//! that they query neither NVML nor the policy. A file that no longer describes the host is refused: its sources are
//! recorded in it ([`HostSource`]), and looking at them again takes a few system calls.
//!
//! Every command of the runtime needs the settings, and most of them nothing else. So the settings come first, in a
//! line of their own ([`HostFile::text`]), and only that line is read ([`head`]). It is one file, so that nobody reads
//! the settings of one refresh with the plan of another. The first line has a checksum, and so has the rest. The plan
//! has the number of equal replicas, and not each of them.

mod error;
mod seal;
mod seen;
mod source;

pub use error::HostFileError;
pub use seen::HostFileSeen;
pub use source::{HostSource, SourceKind, SourceState};

use crate::digest::Digest;
use crate::inventory::Inventory;
use crate::policy::RuntimeSettings;
use crate::share::Plan;
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::Path;
use tranche_core::bounded;
use tranche_core::error::{Context, Error};
use tranche_core::ledger::LedgerDirectory;
use tranche_core::root::{Missing, is_in_user_namespace};
use tranche_core::types::HostPath;

/// The name of the file in the state directory.
pub const NAME: &str = "host.json";

/// The version of the form of the file. A reader refuses every other one.
pub const VERSION: u32 = 3;

/// The most bytes that are read. A host with eight GPUs, each in a thousand unequal shares, has less.
const MOST_BYTES: u64 = 64 << 20;

/// What the runtime shim and the precreate hook know of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFile {
    /// [`VERSION`] of the program that wrote it.
    pub version: u32,
    /// The version of tranche that wrote it.
    pub program: String,
    /// The owner's decisions about the shim.
    pub runtime: RuntimeSettings,
    /// The digest of the inventory.
    pub host: Digest,
    /// The digest of the plan.
    pub policy: Digest,
    /// What the host has; without what was looked for and not found.
    pub inventory: Inventory,
    /// Which devices are split, and how; empty without a policy.
    pub plan: Plan,
    /// What is wrong with the policy that somebody has written since the one that this plan is of, which stays in
    /// force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wrong_policy: Option<String>,
    /// The program `tranche-oci`, as engines find it.
    pub hook: HostPath,
    /// The arguments of the `tranche cdi refresh` that wrote it, and that writes it again in the same way.
    pub arguments: Vec<String>,
    /// What it was made from, and what changes when the host does.
    pub sources: Vec<HostSource>,
}

impl HostFile {
    /// Reads the file in `state_dir` and checks that it still describes the host.
    ///
    /// # Errors
    /// Returns an error if the file does not exist, was written by another version of tranche, is damaged, could have
    /// been written by another user, or no longer describes the host.
    pub fn read(state_dir: &Path) -> Result<Self, HostFileError> {
        let file = Self::load(state_dir)?;
        match file.sources.iter().find(|source| !source.is_unchanged()) {
            None => Ok(file),
            Some(source) => Err(HostFileError::Stale {
                path: state_dir.join(NAME),
                changed: source.clone(),
                arguments: file.arguments,
            }),
        }
    }

    /// Reads the file in `state_dir`, whether or not it still describes the host.
    ///
    /// # Errors
    /// As [`HostFile::read`], except that the file may describe an earlier state of the host.
    pub fn load(state_dir: &Path) -> Result<Self, HostFileError> {
        let path = || state_dir.join(NAME);
        let bytes = match is_in_user_namespace() || !geteuid().is_root() {
            // A user or a rootless engine, whose mistakes are the user's own. The file is root's, and in a user
            // namespace no directory seems to belong to root.
            true => read_plainly(&path()).map_err(HostFileError::Refused)?,
            false => {
                let directory = LedgerDirectory::state(state_dir, Missing::Leave).map_err(HostFileError::Refused)?;
                let read = directory.map(|directory| directory.read(NAME, MOST_BYTES)).transpose();
                read.map_err(HostFileError::Refused)?.flatten()
            }
        };
        let Some(bytes) = bytes else {
            return Err(HostFileError::Missing { path: path() });
        };
        // Another version may have other checksums and other fields.
        let opened = seal::open(&bytes).and_then(|text| Ok(serde_json::from_str::<Self>(&text)?));
        let head = match &opened {
            Ok(file) => Some((file.version, file.program.clone())),
            Err(_) => serde_json::from_slice(&bytes)
                .ok()
                .map(|HostFileHead { version, program }| (version, program)),
        };
        match (opened, head) {
            (_, Some((version, program))) if version != VERSION || program != env!("CARGO_PKG_VERSION") => {
                Err(HostFileError::OtherVersion { path: path(), program })
            }
            (Ok(file), _) => Ok(file),
            (Err(error), _) => Err(HostFileError::Damaged { path: path(), error }),
        }
    }

    /// The text of the file: a JSON object, of which the first line has what [`head`] reads.
    ///
    /// # Errors
    /// Returns an error if a path is not UTF-8.
    pub fn text(&self) -> serde_json::Result<String> {
        let text = serde_json::to_string(self)?;
        let first = serde_json::to_string(&FirstLine {
            version: self.version,
            program: &self.program,
            runtime: &self.runtime,
        })?;
        // The first fields of the file are those of the first line.
        let fields = first.strip_suffix('}').unwrap_or_default();
        let rest = text
            .strip_prefix(fields)
            .and_then(|rest| rest.strip_prefix(',')?.strip_suffix('}'));
        Ok(match (fields.strip_prefix('{'), rest) {
            (Some(fields), Some(rest)) => seal::seal(fields, rest),
            _ => format!("{text}\n"),
        })
    }
}

/// The content of the file at `path`; `None` if it does not exist.
fn read_plainly(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match File::open(path).and_then(|file| bounded::read(file, MOST_BYTES)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some).about(path.display(), "cannot be read"),
    }
}

/// Reads the first line of a `host.json`, as a JSON object of its own with its checksum
/// ([`tranche_core::sealed::parse`]): the version, the program and the settings of the runtime. Of a file that was
/// written in one line, as the first version of the form was, it returns everything.
///
/// # Errors
/// Returns `FileTooLarge` if the line has more than 64 MiB, or the error of reading.
pub fn head(file: impl Read) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    BufReader::new(file.take(MOST_BYTES + 1)).read_until(b'\n', &mut line)?;
    if line.len() as u64 > MOST_BYTES {
        return Err(bounded::too_large(MOST_BYTES));
    }
    line.truncate(line.trim_ascii_end().len());
    if let Some(comma @ b',') = line.last_mut() {
        *comma = b'}';
    }
    Ok(line)
}

/// What the first line has: the first fields of [`HostFile`].
#[derive(Serialize)]
struct FirstLine<'a> {
    version: u32,
    program: &'a str,
    runtime: &'a RuntimeSettings,
}

/// What every version of the file has.
#[derive(Deserialize)]
struct HostFileHead {
    version: u32,
    program: String,
}

#[cfg(test)]
mod tests;
