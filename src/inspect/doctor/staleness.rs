//! Whether specifications of tranche are older than the host or the policy.

use super::specifications::missing_files;
use super::{Diagnosis, DoctorSubject, Finding, Fix};
use tranche_plan::cdi::header::SpecOrigin;

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    if subject.is_in_disorder() {
        return vec![Diagnosis::skipped("the host is in a state that is reported above")];
    }
    let why = "containers get files that do not exist any more, or lack devices";
    let stale = subject.stale.iter().map(|problem| {
        let mut text = problem.to_string();
        // The files of another driver are gone because there is another driver.
        let missing = missing_files(subject, &problem.path).len();
        if missing > 0 {
            text.push_str(&format!("; of what it names, {} not exist", does(missing)));
        }
        // A specification of refresh is written again by refresh; one of generate has options that only its owner
        // knows.
        let again = || Fix::by_hand("run tranche cdi generate again, with the options of the first time");
        let fix = subject.rewrites(&problem.path).unwrap_or_else(again);
        Diagnosis::wrong(Finding::SpecStale, text, why, fix)
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

fn does(count: usize) -> String {
    match count {
        1 => "1 file does".to_owned(),
        count => format!("{count} files do"),
    }
}
