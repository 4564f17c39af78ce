//! Whether the low-level runtime shows what hooks print.

use super::{Diagnosis, DoctorSubject};
use tranche_plan::engines::shown;

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    match subject.other_programs.iter().find(|(name, _)| *name == "crun") {
        None => vec![Diagnosis::skipped(
            "crun was not found; other runtimes show what a hook that fails prints",
        )],
        // Nothing is to be done: this is how crun works.
        Some((name, version)) => vec![Diagnosis::good(format!(
            "{} discards what hooks print; tranche status shows the messages of all hooks",
            shown(name, version.as_ref())
        ))],
    }
}
