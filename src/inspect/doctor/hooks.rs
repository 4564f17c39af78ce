//! Whether the hooks in specifications are programs that need no loader.

use super::{Diagnosis, DoctorSubject, Finding};
use std::collections::BTreeSet;
use std::fs::File;
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
        found.push(Diagnosis::good(format!("{} is static", paths.join(", "))));
    }
    found
}

/// What is wrong with the program at `path`. A missing one is a problem of the specification, which has its own check.
fn wrong(path: &Path) -> Option<Diagnosis> {
    let file = File::open(path).ok()?;
    match elf::needs_loader(file) {
        Ok(false) => None,
        Ok(true) | Err(_) => Some(Diagnosis::wrong(
            Finding::HookNotStatic,
            format!("{}: is not a static program", path.display()),
            "variables of an image, such as LD_PRELOAD, reach its loader",
            "install the package tranche again, from the file that it came from: the tranche-oci in it is static; in a source \
             tree, make oci builds one",
        )),
    }
}
