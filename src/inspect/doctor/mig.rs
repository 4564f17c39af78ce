//! Whether the layouts of MIG were made that the boot had to make again.

use super::{Diagnosis, DoctorSubject, Finding};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    if subject.state.is_none() {
        return vec![Diagnosis::skipped("another machine is examined")];
    }
    let failed = subject.mig_restore.iter().map(|error| {
        Diagnosis::wrong(
            Finding::MigNotRestored,
            format!("tranche-mig.service: {}", error.found),
            "the GPU has other instances than the policy or the saved layout says, so devices that containers ask for are missing",
            error.fix_or("correct what the message names, and make the layouts: tranche mig restore"),
        )
    });
    let found: Vec<Diagnosis> = failed.collect();
    match found.is_empty() {
        true => vec![Diagnosis::good("no layout failed to be made")],
        false => found,
    }
}
