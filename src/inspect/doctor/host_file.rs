//! Whether the runtime knows the host as it is.

use super::{Diagnosis, DoctorSubject, Finding, FoundError};
use tranche_core::error::line;
use tranche_plan::host_file::HostFileError;

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    if matches!(subject.state, Some(Err(_))) {
        return vec![Diagnosis::skipped("it is in a state directory that is refused")];
    }
    let Some(file) = &subject.host_file else {
        return vec![Diagnosis::skipped("another machine is examined")];
    };
    vec![match file {
        Ok(file) => Diagnosis::good(format!("it describes the host, written by tranche {}", file.program)),
        Err(HostFileError::Missing { path }) => Diagnosis::skipped(format!(
            "{} does not exist: no runtime of tranche is in use",
            path.display()
        )),
        Err(HostFileError::Refused(error)) => {
            let error = FoundError::of(error);
            Diagnosis::wrong(
                Finding::HostFileRefused,
                error.found.clone(),
                "the runtime of tranche does not use it, and starts no container with a GPU",
                error.fix_or("remove it, then run tranche cdi refresh"),
            )
        }
        Err(HostFileError::Stale { path, .. }) if has_other_cause(subject) => {
            Diagnosis::skipped(format!("{} is old for a reason that is reported above", path.display()))
        }
        Err(error) => Diagnosis::wrong(
            Finding::HostFileOld,
            line(error),
            "the runtime of tranche refreshes it at the next start of a container, which takes longer",
            subject.refresh(),
        ),
    }]
}

/// Whether what is reported above is the reason why the file is out of date, or why it cannot be written again.
fn has_other_cause(subject: &DoctorSubject) -> bool {
    let policy = &subject.policy;
    subject.is_in_disorder() || subject.reports_refreshed() || policy.invalid.is_some() || policy.unfit.is_some()
}
