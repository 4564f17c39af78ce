//! Whether the runtime knows the host as it is.

use super::{Diagnosis, DoctorSubject, Trouble};
use crate::error::line;
use crate::host_file::HostFileError;

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    vec![match &subject.host_file {
        Ok(file) => Diagnosis::good(format!("it describes the host, written by tranche {}", file.program)),
        Err(HostFileError::Missing { path }) => Diagnosis::skipped(format!(
            "{} does not exist: no runtime of tranche is in use",
            path.display()
        )),
        Err(error) => Diagnosis::Wrong(Trouble::safe(
            line(error),
            "the runtime of tranche refreshes it at the next start of a container, which takes longer",
            &["cdi", "refresh"],
        )),
    }]
}
