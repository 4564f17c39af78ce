//! Files of other programs that define the same devices.
//!
//! Engines ignore a device that two files of one directory define, and NVIDIA's refresh service writes its own files.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tranche_core::call::ClaimCall;
use tranche_core::error::Error;
use tranche_core::types::{CdiKind, Part, Subject};
use tranche_plan::cdi::header::is_by_tranche;
use tranche_plan::cdi::registry::{Loaded, Registry, has_mark_of_refresh};
use tranche_plan::edits::{Derived, DerivedDevice};
use tranche_plan::guarded::GuardedDevices;

/// What the files of other programs mean for a refresh.
#[derive(Debug, Default)]
pub(super) struct OtherFiles {
    /// The first file that defines devices of tranche's: the plain devices were left to it.
    pub(super) plain: Option<PathBuf>,
    /// Names of plain devices that were left out, and that no other file defines.
    pub(super) lost: Vec<String>,
    /// Files with nodes of devices that are split or dedicated, each with the first such device: an engine that reads
    /// the file gives them without a claim.
    pub(super) open: Vec<String>,
    /// Files that cannot be read, with the reason. What they define is not known.
    pub(super) not_read: Vec<String>,
}

/// Leaves the plain devices out of `derived` if a file of another program in `dirs` defines one of them. `guarded` are
/// the devices that a container gets only with a claim.
///
/// # Errors
/// Returns an error if `tranche cdi generate` has written one of the devices to `output_dir`: then engines would ignore
/// the devices of both files.
pub(super) fn leave_out(
    derived: &mut Derived,
    dirs: &[PathBuf],
    output_dir: &Path,
    guarded: &GuardedDevices,
) -> Result<OtherFiles, Error> {
    let mut dirs: Vec<PathBuf> = dirs.to_vec();
    if !dirs.iter().any(|dir| is_same(dir, output_dir)) {
        dirs.push(output_dir.to_owned());
    }
    // Those of a refresh are many times as large as those of others, and are not looked at.
    let registry = Registry::read_only(&dirs, |path| !has_mark_of_refresh(path));
    let mut found = OtherFiles::default();
    let mut defined: BTreeSet<&str> = BTreeSet::new();
    for file in registry.files() {
        if !defines_any(file, derived) {
            continue;
        }
        match is_by_tranche(&file.comments) {
            false => {
                found.plain.get_or_insert_with(|| file.path.clone());
                defined.extend(file.spec.devices.iter().map(|device| device.name.as_str()));
            }
            true if file.path.parent().is_some_and(|dir| is_same(dir, output_dir)) => {
                let what = "tranche cdi generate wrote the same devices there, and engines ignore a device that two \
                            files of one directory define";
                return Err(Error::failed(file.path.display(), what)
                    .hint("remove that file, or give --output-dir with another directory"));
            }
            true => {}
        }
    }
    if found.plain.is_some() {
        let lost = derived.devices.iter().filter(|device| !is_share(device));
        let lost = lost.filter(|device| !defined.contains(device.name.as_str()));
        found.lost = lost.map(|device| device.name.to_string()).collect();
        derived.devices.retain(is_share);
    }
    // What a resource claim with admin access watches has no hook: it was given so, and the kubelet alone names it.
    let is_own_claim = |file: &Loaded| file.spec.kind == CdiKind::claim().to_string() && is_by_tranche(&file.comments);
    let others = registry.files().iter().filter(|file| !is_own_claim(file));
    found.open = others.filter_map(|file| open_device(file, guarded)).collect();
    let not_read = registry.problems.iter().filter(|problem| problem.lost.is_none());
    found.not_read = not_read
        .map(|problem| format!("{} is not looked at: {}", problem.path.display(), problem.what))
        .collect();
    Ok(found)
}

/// The first device of `file` by which a container gets a device without the claim that it needs.
fn open_device(file: &Loaded, guarded: &GuardedDevices) -> Option<String> {
    file.spec.devices.iter().find_map(|device| {
        let open = guarded.open_node([&file.spec.edits, &device.edits].into_iter())?;
        let name = format!("{}={} of {}", file.spec.kind, device.name, file.path.display());
        Some(open.refusal(name).to_string())
    })
}

/// Whether `file` defines one of the plain devices, or a device of any kind that tranche offers.
fn defines_any(file: &Loaded, derived: &Derived) -> bool {
    let names: BTreeSet<&str> = file.spec.devices.iter().map(|device| device.name.as_str()).collect();
    let defines = |kind: &str, devices: &[DerivedDevice]| {
        file.spec.kind == kind && devices.iter().any(|device| names.contains(device.name.as_str()))
    };
    let mut renamed = derived.renamed.iter();
    defines(&derived.kind.to_string(), &derived.devices)
        || renamed.any(|(kind, devices)| defines(&kind.to_string(), devices))
}

fn is_share(device: &DerivedDevice) -> bool {
    let mut calls = device
        .edits
        .hooks
        .iter()
        .filter_map(|hook| ClaimCall::of_hook(&hook.args));
    calls.any(|call| matches!(call.subject, Subject::Part(Part::Any | Part::Share(_), _)))
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(one) == real(other)
}
