//! Whether every process on a shared device has a claim, and no claim uses more than it was promised.

use super::{Diagnosis, DoctorSubject, Finding};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    if subject.ledger.is_none() {
        return vec![Diagnosis::skipped("only root can read the ledger")];
    }
    let Some(shared) = &subject.shared_use else {
        return vec![Diagnosis::skipped("no device is shared")];
    };
    if let Some(error) = &shared.unknown {
        return vec![Diagnosis::wrong(
            Finding::UseUnknown,
            error.found.clone(),
            "tranche status and tranche top end with this message",
            error.fix_or("correct what the message names"),
        )];
    }
    let strangers = shared.without_claim.iter().map(|line| {
        Diagnosis::wrong(Finding::UseWithoutClaim,
            line.clone(),
            "it uses memory and time that the holders of shares were promised, and no limit applies to it",
            "end it, or start it in a share: tranche run --share SHARE -- PROGRAM, or a container with --device of a share",
        )
    });
    let beyond = shared.beyond_promise.iter().map(|line| {
        Diagnosis::advice(
            Finding::UseBeyondPromise,
            line.clone(),
            "the other holders may find less memory than they were promised",
            "give that container a larger share, or run fewer processes in it",
        )
    });
    let found: Vec<Diagnosis> = strangers.chain(beyond).collect();
    match (found.is_empty(), shared.processes) {
        (false, _) => found,
        (true, Some(0)) => vec![Diagnosis::good("no process uses a shared device")],
        (true, Some(processes)) => vec![Diagnosis::good(format!(
            "each process on shared devices has a claim; there are {processes}"
        ))],
        (true, None) => vec![Diagnosis::skipped(
            "NVML does not report which processes use the shared devices",
        )],
    }
}
