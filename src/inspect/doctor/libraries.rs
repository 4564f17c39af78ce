//! Whether programs of the host load the libraries of its driver, or those of another one.

use super::{Diagnosis, DoctorSubject, Finding};
use std::path::PathBuf;
use tranche_core::text::some;
use tranche_plan::inventory::WarningKind;

/// A library of another driver that programs load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherLibrary {
    /// The name by which they ask for it, with the directory in which the loader finds it.
    pub link: PathBuf,
    /// The file that they get.
    pub file: PathBuf,
}

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let Some(driver) = &subject.inventory.driver else {
        return vec![Diagnosis::skipped("there is no driver")];
    };
    if subject.warns_of(WarningKind::Versions).next().is_some() {
        return vec![Diagnosis::skipped(
            "they are of another version than the module, which is reported above",
        )];
    }
    if subject.other_libraries.is_empty() {
        return vec![Diagnosis::good("programs load those of the driver")];
    }
    let others = subject.other_libraries.iter();
    let others: Vec<String> = others
        .map(|one| format!("{} is {}", one.link.display(), one.file.display()))
        .collect();
    vec![Diagnosis::wrong(
        Finding::LibrariesMixed,
        format!("the driver is {}, and {}", driver.version, some(&others)),
        "programs on the host fail with a mismatch of versions, and so does what tranche asks NVML; containers get the \
         libraries of the driver",
        "remove the libraries of the other driver, or the package that has them, then run ldconfig",
    )]
}
