//! The specifications of claims, by which engines know them: one file for each, `nvidia.com-claim_NAME.yaml`, as CDI
//! names a transient specification.

mod offer;

pub use offer::{ClaimFile, describe, device_name, is_of_user, reservation};

use crate::replace;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use tranche_core::call::ClaimCall;
use tranche_core::claims::remove;
use tranche_core::error::{Context, Error, Result};
use tranche_core::ledger::Claim;
use tranche_core::types::Subject;
use tranche_plan::cdi::directory::entries;
use tranche_plan::cdi::registry::Registry;
use tranche_plan::cdi::{self, header};

const PREFIX: &str = "nvidia.com-claim_";
const SUFFIX: &str = ".yaml";

/// The file of the claim `name` in `dir`.
pub fn file(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{PREFIX}{name}{SUFFIX}"))
}

/// The claim that a device of a specification makes, if it makes one.
pub fn claim_of(device: &cdi::Device) -> Option<ClaimCall> {
    let mut hooks = device.edits.hooks.iter();
    hooks.find_map(|hook| ClaimCall::of_hook(&hook.args))
}

/// Whether two paths lead to the same file or directory, by whatever links.
pub fn is_same(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| -> PathBuf {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        std::fs::canonicalize(&absolute).unwrap_or(absolute)
    };
    a == b || real(a) == real(b)
}

/// Removes the specification of `claim` of the ledger in `state_dir`, unless the file is no longer that of the claim.
///
/// # Errors
/// Returns an error if the file is another one, or cannot be removed.
pub fn remove_of(claim: &Claim, state_dir: &Path) -> Result<()> {
    let (Some(name), Some(file)) = (&claim.name, &claim.spec_file) else {
        return Ok(());
    };
    let file = Path::new(file);
    if matches!(std::fs::symlink_metadata(file), Err(e) if e.kind() == io::ErrorKind::NotFound) {
        return Ok(());
    }
    match claim_at(file, state_dir) {
        Ok(of) if of == *name => remove(file),
        _ => Err(Error::failed(
            file.display(),
            format!("left alone, because it is not the specification that was written for claim {name}"),
        )
        .hint("remove it yourself if it is not needed")),
    }
}

/// The claim of the ledger in `state_dir` that the specification at `path` is for. tranche writes its name into the
/// header, and the claim and its state directory into the hooks.
///
/// # Errors
/// Returns an error that says why the file is left alone: it is for a claim of another ledger, or may be anything.
pub fn claim_at(path: &Path, state_dir: &Path) -> Result<String, Error> {
    let unknown = |why: &str| {
        Error::failed(path.display(), format!("left alone, because {why}"))
            .hint("remove it yourself if it is not needed")
    };
    if !std::fs::symlink_metadata(path).is_ok_and(|m| m.is_file()) {
        return Err(unknown("it is not a regular file"));
    }
    let read = Registry::read_file(path);
    let Some(loaded) = read.files().first() else {
        return Err(unknown("it is not a valid specification"));
    };
    if !header::is_by_tranche(&loaded.comments) {
        return Err(unknown("its header does not say that tranche wrote it"));
    }
    let calls: Vec<ClaimCall> = loaded.spec.devices.iter().filter_map(claim_of).collect();
    let [call] = &calls[..] else {
        return Err(unknown("it does not describe exactly one claim"));
    };
    let Subject::Claim(name, _) = &call.subject else {
        return Err(unknown("it does not describe a claim"));
    };
    if path.file_name() != file(Path::new(""), name).file_name() {
        return Err(unknown("its file name does not match its claim"));
    }
    if !is_same(call.state_dir.as_path(), state_dir) {
        let what = format!("left alone, because it belongs to the ledger in {}", call.state_dir);
        let hint = format!("run tranche claim gc --state-dir {}", call.state_dir);
        return Err(Error::failed(path.display(), what).hint(hint));
    }
    Ok(name.clone())
}

/// What [`sweep`] did.
#[derive(Debug, Default)]
pub struct Swept {
    /// Specifications that were removed.
    pub removed: Vec<PathBuf>,
    /// Specifications that may be another's, and files that cannot be removed.
    pub left: Vec<Error>,
}

/// Removes the specifications in `dir` of claims that are gone, and what killed writers left. `claims` are all claims
/// of the ledger in `state_dir`, whose lock the caller holds, so that no claim is made meanwhile.
///
/// The file of a claim that exists stays, whatever is in it, so it is not read: the time does not grow with the claims.
///
/// # Errors
/// Returns an error if `dir` cannot be listed.
pub fn sweep(dir: &Path, claims: &[&Claim], state_dir: &Path) -> Result<Swept> {
    let mut swept = Swept::default();
    let named = claims.iter().filter_map(|claim| Some((claim.name.as_deref()?, *claim)));
    let named: HashMap<&str, &Claim> = named.collect();
    for path in files(dir)? {
        if is_live(&path, &named) {
            continue;
        }
        match claim_at(&path, state_dir) {
            // One file that cannot be removed is nothing that keeps others from their claims.
            Ok(_) => match remove(&path) {
                Ok(()) => swept.removed.push(path),
                Err(error) => swept.left.push(error),
            },
            Err(error) => swept.left.push(error),
        }
    }
    swept.left.extend(replace::remove_abandoned(dir).err());
    Ok(swept)
}

/// Whether `path` is the specification of one of the claims `named`, and not of an earlier claim with the same name.
fn is_live(path: &Path, named: &HashMap<&str, &Claim>) -> bool {
    name_of(path).and_then(|name| named.get(name)).is_some_and(|claim| {
        let file = claim.spec_file.as_deref();
        file.is_none_or(|file| is_same(Path::new(file), path))
    })
}

/// The name of the claim whose specification has such a file name.
fn name_of(path: &Path) -> Option<&str> {
    let name = path.file_name().and_then(OsStr::to_str)?;
    name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)
}

/// Whether a file has such a name as the specification of a claim has.
pub fn has_name_of_claim(path: &Path) -> bool {
    name_of(path).is_some()
}

/// The files of claims in `dir`; a directory that does not exist has none.
fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let paths: io::Result<Vec<PathBuf>> = entries(dir).collect();
    let mut paths = paths.about(dir.display(), "cannot be listed")?;
    paths.retain(|path| has_name_of_claim(path));
    Ok(paths)
}
