//! What a user learns about a refusal: what is held and since when, and by whom only if it is the user's own.

use std::fmt::Display;
use tranche_core::claims::explain;
use tranche_core::error::Error;
use tranche_core::ledger::{Claim, LedgerError, Refused, utc};
use tranche_core::text::some;
use tranche_plan::reserve::{ReserveError, explain as explain_reserve};

/// The line for the user `uid` about `object`, which was not given. `free` are the shares of the device that are free.
pub(super) fn entry_refused(uid: u32, object: impl Display, error: LedgerError, free: &[String]) -> Error {
    let is_about_others = matches!(error, LedgerError::Refused(Refused::Taken { .. } | Refused::NoneFree));
    let error = of_ledger(uid, object, error);
    match (is_about_others, free) {
        (false, _) => error,
        (true, []) => error.hint("no share of it is free"),
        (true, free) => error.hint(format!("free: {}", some(free))),
    }
}

/// The line for the user `uid` about an error of the ledger.
fn of_ledger(uid: u32, object: impl Display, error: LedgerError) -> Error {
    match error {
        LedgerError::Refused(Refused::Taken { by, .. }) if by.uid != uid => {
            Error::failed(object, format!("is held since {}", utc(by.since)))
        }
        LedgerError::Refused(Refused::Misfit { misfit, .. }) => {
            Error::failed(object, misfit).hint("it can start when enough of that has ended")
        }
        LedgerError::Refused(Refused::NotYours(_) | Refused::NoSuchClaim(_)) => {
            Error::failed(object, "not found").hint("tranche claim list shows yours")
        }
        other => explain(object, other),
    }
}

/// The line for the user `uid` about a claim `name` that was not made.
pub(super) fn claim_refused(uid: u32, name: &str, error: ReserveError) -> Error {
    let object = format!("claim {name}");
    match error {
        ReserveError::Ledger(error) => of_ledger(uid, object, error),
        other => explain_reserve(object, other, |held| list(uid, held)),
    }
}

/// What is held, in one line.
fn list(uid: u32, claims: &[Claim]) -> String {
    let line = |claim: &Claim| {
        let who = match claim.uid == uid {
            true => claim.who(),
            false => "another user".to_owned(),
        };
        format!("{} by {who} since {}", claim.part, utc(claim.since))
    };
    some(&claims.iter().map(line).collect::<Vec<_>>())
}
