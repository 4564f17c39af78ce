//! Whether engines find the devices, and everything that a specification refers to.

use super::{Diagnosis, DoctorSubject, Trouble};
use crate::text::some;

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let registry = &subject.registry;
    let dirs: Vec<String> = subject.spec_dirs.iter().map(|dir| dir.display().to_string()).collect();
    let offered = registry
        .devices()
        .filter(|(name, _)| name.to_string().starts_with("nvidia.com/"))
        .count();
    let mut found: Vec<Diagnosis> = registry
        .problems
        .iter()
        .map(|problem| {
            Diagnosis::wrong(
                problem.to_string(),
                "engines refuse the container, or do not find the device",
                "tranche cdi validate shows all problems; write the specification again, or remove the file",
            )
        })
        .collect();
    let shadowed: Vec<String> = registry
        .shadowed()
        .iter()
        .map(|one| format!("{} in {}, by {}", one.name, one.file.display(), one.by.display()))
        .collect();
    if !shadowed.is_empty() {
        found.push(Diagnosis::advice(
            format!("devices that another file hides: {}", some(&shadowed)),
            "engines use the file of the later directory, which may be the older one",
            "remove the file that is not wanted",
        ));
    }
    if offered == 0 && !subject.has_driver() && found.is_empty() {
        return vec![Diagnosis::skipped("there is no driver, and no specification")];
    }
    if offered == 0 && subject.has_driver() {
        found.push(Diagnosis::Wrong(Trouble::safe(
            format!("no specification in {} has a device of NVIDIA", some(&dirs)),
            "engines report \"unresolvable CDI devices\"",
            &["cdi", "refresh"],
        )));
    }
    if found.is_empty() {
        found.push(Diagnosis::good(format!(
            "engines find {} of NVIDIA in {}",
            crate::text::counted(offered, "device"),
            some(&dirs)
        )));
    }
    found
}
