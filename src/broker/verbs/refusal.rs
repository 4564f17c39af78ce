//! What a user learns about a refusal: what is held and since when, and by whom only if it is the user's own.

use std::fmt::Display;
use tranche_core::claims::explain;
use tranche_core::error::{Error, Result};
use tranche_core::ledger::{Claim, LedgerError, Refused, utc};
use tranche_core::text::some;
use tranche_core::types::Strategy;
use tranche_plan::reserve::{ReserveError, explain as explain_reserve};

/// The line for the user `uid` about `object`, which was not given. `free` are the shares of the device that are free.
pub(crate) fn entry_refused(uid: u32, object: impl Display, error: LedgerError, free: &[String]) -> Error {
    let says_none = matches!(error, LedgerError::Refused(Refused::NoneFree));
    let is_about_others = says_none || matches!(error, LedgerError::Refused(Refused::Taken { .. }));
    let error = of_ledger(uid, object, error);
    match (is_about_others, free) {
        (false, _) => error,
        (true, []) if says_none => error,
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

/// The line for the user `uid` about `object`, which was not reserved.
pub(crate) fn reserve_refused(uid: u32, object: impl Display, error: ReserveError) -> Error {
    match error {
        ReserveError::Ledger(error) => of_ledger(uid, object, error),
        other => explain_reserve(object, other, |held| list(uid, held)),
    }
}

/// Why a share under MPS cannot be used by what a user starts.
pub(crate) fn refuse_mps(object: impl Display, strategy: Strategy) -> Result<()> {
    if strategy != Strategy::Mps {
        return Ok(());
    }
    let what = "shares under MPS are for containers of engines that run as root: in an engine of a user, a process that \
                leaves MPS runs without any limit";
    Err(Error::failed(object, what).hint("ask for a share under time-slicing, or start the container as root"))
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
