//! Whether specifications of tranche are older than the host or the policy.

use super::{Diagnosis, DoctorSubject, Trouble};
use crate::cdi::header::SpecOrigin;
use crate::cdi::registry::Loaded;
use std::path::Path;

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let why = "containers get files that do not exist any more, or lack devices";
    let is_refreshed = |path: &Path| {
        let mut files = subject.registry.files().iter();
        files.find(|file| file.path == path).is_some_and(Loaded::is_refreshed)
    };
    let stale = subject.stale.iter().map(|problem| {
        let text = problem.to_string();
        // A specification of refresh is written again by refresh; one of generate has options that only its owner knows.
        match is_refreshed(&problem.path) {
            true => Diagnosis::Wrong(Trouble::safe(text, why, &["cdi", "refresh"])),
            false => Diagnosis::wrong(
                text,
                why,
                "run tranche cdi generate again, with the options of the first time",
            ),
        }
    });
    let mut found: Vec<Diagnosis> = stale.collect();
    found.extend(subject.not_compared.iter().map(Diagnosis::skipped));
    let of_tranche = |comments: &[String]| SpecOrigin::from_comments(comments).is_some();
    if found.is_empty() && !subject.registry.files().iter().any(|file| of_tranche(&file.comments)) {
        return vec![Diagnosis::skipped("engines read no specification of tranche")];
    }
    if found.is_empty() {
        found.push(Diagnosis::good("as new as the host and the policy"));
    }
    found
}
