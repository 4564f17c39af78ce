//! Whether users can read the specifications, which engines without root's rights do.

use super::{Diagnosis, DoctorSubject, Finding, Fix};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tranche_core::text::some;

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    if !subject.engines.iter().any(|found| found.engine.facts().is_rootless) {
        return vec![Diagnosis::skipped(
            "podman and docker were not found, which users can run",
        )];
    }
    let files = || subject.registry.files().iter().map(|file| file.path.as_path());
    let directories: BTreeSet<&Path> = files().filter_map(Path::parent).collect();
    let lack =
        |path: &&Path, needed: u32| fs::metadata(path).is_ok_and(|data| data.permissions().mode() & needed != needed);
    let private: Vec<String> = directories
        .into_iter()
        .filter(|path| lack(path, 0o005))
        .chain(files().filter(|path| lack(path, 0o004)))
        .map(|path| path.display().to_string())
        .collect();
    if private.is_empty() {
        return vec![Diagnosis::good("every user can read them")];
    }
    vec![Diagnosis::wrong(
        Finding::SpecPrivate,
        format!("users other than the owner cannot read {}", some(&private)),
        "a user's own podman or docker reports the devices as unresolvable",
        Fix::command(format!("chmod a+rX {}", private.join(" "))),
    )]
}
