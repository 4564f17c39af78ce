//! Whether the ledger can be read, and the policy provides for what is held.

use super::{Diagnosis, DoctorSubject, Finding};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    if matches!(subject.state, Some(Err(_))) {
        return vec![Diagnosis::skipped("it is in a state directory that is refused")];
    }
    if subject.state.is_none() {
        return vec![Diagnosis::skipped("another machine is examined")];
    }
    let Some(ledger) = &subject.ledger else {
        return vec![Diagnosis::skipped("only root can read it")];
    };
    let damaged = ledger.damaged.iter().map(|error| {
        Diagnosis::wrong(
            Finding::LedgerDamaged,
            error.found.clone(),
            "it is unknown what is held of this GPU, so its shares are refused",
            error.fix_or("remove it when no container holds a share of this GPU"),
        )
    });
    let unusable = ledger.unusable.iter().map(|error| {
        Diagnosis::wrong(
            Finding::LedgerUnusable,
            error.found.clone(),
            "no share can be claimed, released or shown",
            error.fix_or("correct what the message names"),
        )
    });
    let held = ledger.held.iter().map(|line| {
        Diagnosis::wrong(
            Finding::HeldBeyondPolicy,
            line.clone(),
            "some shares of the policy are refused until that is released",
            "tranche status shows who holds what; stop that container, or change the policy back",
        )
    });
    let found: Vec<Diagnosis> = damaged.chain(unusable).chain(held).collect();
    match found.is_empty() {
        true => vec![Diagnosis::good(tranche_core::text::counted(ledger.claims, "claim"))],
        false => found,
    }
}
