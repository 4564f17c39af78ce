//! Whether the state directory belongs to root alone.

use super::{Diagnosis, DoctorSubject, Finding};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    vec![match &subject.state {
        None => Diagnosis::skipped("another machine is examined"),
        Some(Ok(())) => Diagnosis::good("no other user can replace what is in it"),
        Some(Err(error)) => Diagnosis::wrong(
            Finding::StateUnsafe,
            error.found.clone(),
            "claims are refused, and the runtime of tranche starts no container with a GPU",
            error.fix_or("give the directory to root, with mode 0755"),
        ),
    }]
}
