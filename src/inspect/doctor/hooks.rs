//! Whether the hooks in specifications are programs that only root can replace, and need no loader.

use super::{Diagnosis, DoctorSubject, Finding};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tranche_core::elf;

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let files = subject.registry.files().iter();
    let of_tranche: BTreeSet<PathBuf> = files
        .flat_map(|file| {
            let devices = file.spec.devices.iter().map(|device| &device.edits);
            devices.chain([&file.spec.edits]).flat_map(|edits| &edits.hooks)
        })
        .map(|hook| PathBuf::from(&hook.path))
        .filter(|path| path.file_name().is_some_and(|name| name == "tranche-oci"))
        .collect();
    if of_tranche.is_empty() {
        return vec![Diagnosis::skipped("no specification calls tranche-oci")];
    }
    let mut found: Vec<Diagnosis> = of_tranche.iter().filter_map(|path| wrong(path)).collect();
    if found.is_empty() {
        let paths: Vec<String> = of_tranche.iter().map(|path| path.display().to_string()).collect();
        found.push(Diagnosis::good(format!(
            "{} is static, and only root can replace it",
            paths.join(", ")
        )));
    }
    found
}

/// What is wrong with the program at `path`. A missing one is a problem of the specification, which has its own check.
fn wrong(path: &Path) -> Option<Diagnosis> {
    let real = fs::canonicalize(path).ok()?;
    for part in real.ancestors() {
        let data = fs::metadata(part).ok()?;
        if data.uid() != 0 || data.mode() & 0o022 != 0 && data.mode() & 0o1000 == 0 {
            return Some(Diagnosis::wrong(
                Finding::HookReplaceable,
                format!(
                    "{}: a user other than root can write {}",
                    path.display(),
                    part.display()
                ),
                "engines run it as root at every start of a container",
                "install it where only root can write, such as /usr/bin",
            ));
        }
    }
    let is_static = File::open(&real)
        .ok()
        .and_then(|file| elf::needs_loader(file).ok())
        .map(|needs| !needs);
    match is_static {
        Some(true) => None,
        _ => Some(Diagnosis::wrong(
            Finding::HookNotStatic,
            format!("{}: is not a static program", path.display()),
            "variables of an image, such as LD_PRELOAD, reach its loader",
            "make oci builds it as a static program",
        )),
    }
}
