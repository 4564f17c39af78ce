//! Whether the low-level runtime shows what hooks print.

use super::{Diagnosis, DoctorSubject};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    match &subject.crun {
        None => vec![Diagnosis::skipped(
            "crun was not found; other runtimes show what a hook that fails prints",
        )],
        // Nothing is to be done: this is how crun works.
        Some(crun) => vec![Diagnosis::good(format!(
            "{crun} discards what hooks print; tranche status shows the messages of all hooks"
        ))],
    }
}
