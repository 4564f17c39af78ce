//! The specifications of claims: one file for each, `nvidia.com-claim_NAME.yaml`, as CDI names a transient specification.

use crate::call::{ClaimCall, Subject};
use crate::cdi::directory::entries;
use crate::cdi::header;
use crate::cdi::registry::Registry;
use crate::cdi::write;
use crate::claims::remove;
use crate::cli::specs::{claim_of, same_directory};
use crate::error::{Context, Error, Result};
use crate::ledger::Claim;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

const PREFIX: &str = "nvidia.com-claim_";
const SUFFIX: &str = ".yaml";

/// The file of the claim `name` in `dir`.
pub(super) fn file(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{PREFIX}{name}{SUFFIX}"))
}

/// Whose a specification of a claim is, by what it says itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A claim of that name in this ledger.
    Claim(String),
    /// Another ledger.
    Ledger(PathBuf),
    /// It does not say; why.
    Unknown(&'static str),
}

/// Whose the specification at `path` is. tranche writes its name into the header, and the claim and its state directory
/// into the hooks.
pub(super) fn owner(path: &Path, state_dir: &Path) -> Owner {
    if !std::fs::symlink_metadata(path).is_ok_and(|m| m.is_file()) {
        return Owner::Unknown("it is not a regular file");
    }
    let read = Registry::read_file(path);
    let Some(loaded) = read.files().first() else {
        return Owner::Unknown("it is not a valid specification");
    };
    if !header::is_by_tranche(&loaded.comments) {
        return Owner::Unknown("its header does not say that tranche wrote it");
    }
    let calls: Vec<ClaimCall> = loaded.spec.devices.iter().filter_map(claim_of).collect();
    let [call] = &calls[..] else {
        return Owner::Unknown("it does not describe exactly one claim");
    };
    let Subject::Claim(name, _) = &call.subject else {
        return Owner::Unknown("it does not describe a claim");
    };
    if path.file_name() != file(Path::new(""), name).file_name() {
        return Owner::Unknown("its file name does not match its claim");
    }
    if !same_directory(call.state_dir.as_path(), state_dir) {
        return Owner::Ledger(call.state_dir.as_path().to_owned());
    }
    Owner::Claim(name.clone())
}

/// What [`sweep`] did.
#[derive(Debug, Default)]
pub(super) struct Swept {
    /// Specifications that were removed.
    pub(super) removed: Vec<PathBuf>,
    /// Specifications that may be another's, and temporary files that cannot be removed.
    pub(super) left: Vec<Error>,
}

/// Removes the specifications in `dir` of claims that are gone, and what killed writers left. `claims` are all claims of the
/// ledger in `state_dir`, whose lock the caller holds, so that no claim is made meanwhile.
///
/// # Errors
/// Returns an error if `dir` cannot be listed or a file cannot be removed.
pub(super) fn sweep(dir: &Path, claims: &[&Claim], state_dir: &Path) -> Result<Swept> {
    let mut swept = Swept::default();
    for path in files(dir)? {
        match owner(&path, state_dir) {
            Owner::Claim(name) if is_live(&path, &name, claims) => {}
            Owner::Claim(_) => {
                remove(&path)?;
                swept.removed.push(path);
            }
            Owner::Ledger(other) => {
                let what = format!("left alone, because it belongs to the ledger in {}", other.display());
                swept.left.push(
                    Error::failed(path.display(), what)
                        .hint(format!("run tranche claim gc --state-dir {}", other.display())),
                );
            }
            Owner::Unknown(why) => swept.left.push(
                Error::failed(path.display(), format!("left alone, because {why}"))
                    .hint("remove it yourself if it is not needed"),
            ),
        }
    }
    write::remove_abandoned(dir)?;
    Ok(swept)
}

/// Whether `path` is the specification of one of `claims`, and not of an earlier claim with the same name.
fn is_live(path: &Path, name: &str, claims: &[&Claim]) -> bool {
    let is_here = |file: &str| {
        let file = Path::new(file);
        file.file_name() == path.file_name()
            && same_directory(
                file.parent().unwrap_or(Path::new("/")),
                path.parent().unwrap_or(Path::new(".")),
            )
    };
    claims
        .iter()
        .filter(|claim| claim.name.as_deref() == Some(name))
        .any(|claim| claim.spec_file.as_deref().is_none_or(is_here))
}

/// The files of claims in `dir`; a directory that does not exist has none.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let is_of_claim = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with(PREFIX) && name.ends_with(SUFFIX)
    };
    let paths: io::Result<Vec<PathBuf>> = entries(dir).collect();
    let mut paths = paths.about(dir.display(), "cannot be listed")?;
    paths.retain(is_of_claim);
    Ok(paths)
}
