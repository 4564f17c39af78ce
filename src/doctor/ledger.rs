//! Whether the ledger can be read, and the policy provides for what is held.

use super::{Diagnosis, DoctorSubject};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let Some(ledger) = &subject.ledger else {
        return vec![Diagnosis::skipped("only root can read it")];
    };
    let wrong = ledger.wrong.iter().map(|line| {
        Diagnosis::wrong(
            line.clone(),
            "some shares of the policy are refused until that is released",
            "tranche status shows who holds what; stop that container, or change the policy back",
        )
    });
    let found: Vec<Diagnosis> = wrong.collect();
    match found.is_empty() {
        true => vec![Diagnosis::good(crate::text::counted(ledger.claims, "claim"))],
        false => found,
    }
}
