//! Whether the runtime of tranche finds the program that does the work.

use super::{Diagnosis, DoctorSubject, Finding};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    vec![match &subject.low_level {
        None => Diagnosis::skipped("no engine has the runtime of tranche"),
        Some(Ok(path)) => Diagnosis::good(format!("tranche-runtime executes {}", path.display())),
        Some(Err(error)) => Diagnosis::wrong(
            Finding::LowLevelMissing,
            error.found.clone(),
            "no container that uses the runtime of tranche starts",
            error.fix_or("install runc or crun"),
        ),
    }]
}
