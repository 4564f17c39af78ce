//! The text for people about what went wrong with a claim. Hooks and the command line get it from here.

use super::ReserveError;
use crate::error::{Error, Kind};
use crate::ledger::{Claim, LedgerError, Refused, utc};
use crate::text::some;
use std::fmt::Display;

/// The line for an error of a reservation. `object` is what it is about where the ledger itself cannot be used, and
/// `list` makes a list of claims in one line: who holds what since when.
pub fn explain_reserve(object: impl Display, error: ReserveError, list: impl FnOnce(&[Claim]) -> String) -> Error {
    match error {
        ReserveError::Offer(error) => error,
        ReserveError::Ledger(error) => explain(object, error),
        ReserveError::Behind { wish, waiting } => explain(wish, Refused::Waiting { waiting }.into()),
        ReserveError::NothingFits { error, held, waiting } => {
            let error = match waiting {
                0 => error,
                _ => error.and_hint(Refused::Waiting { waiting }),
            };
            match &held[..] {
                [] => error,
                held => error.and_hint(format_args!("held: {}", list(held))),
            }
        }
        ReserveError::TimedOut { waited, last } => {
            let waited = format!("waited {} s for it", waited.as_secs());
            explain_reserve(object, *last, list).and_hint(waited)
        }
    }
}

/// Who holds what since when, in one line.
pub fn list(claims: &[Claim]) -> String {
    let line = |claim: &Claim| format!("{} by {} since {}", claim.part, claim.who(), utc(claim.since));
    some(&claims.iter().map(line).collect::<Vec<_>>())
}

/// The line about `object` (`claim train1`, `gpu 0 share 3`) for an error of the ledger. What is wrong with the ledger
/// itself is said about its file.
pub fn explain(object: impl Display, error: LedgerError) -> Error {
    match error {
        LedgerError::Refused(refused) => refusal(object, refused),
        LedgerError::Damaged(book) => book.error,
        LedgerError::OutOfSpace(error) | LedgerError::Failed(error) => error,
    }
}

fn refusal(object: impl Display, refused: Refused) -> Error {
    let error = Error::new(kind_of(&refused), object, &refused);
    match refused {
        Refused::NoSuchClaim(_) => error.hint("tranche claim list shows those that exist"),
        Refused::OtherPromise(_) => error.hint("release it and create it again"),
        Refused::Misfit { .. } => error.hint("it can start when enough of that has ended"),
        Refused::NameTaken(name) => error.hint(format!("tranche claim release {name}, or choose another name")),
        Refused::InUse { .. } => {
            error.hint("stop that container, or give --force: it then keeps its access to the device until it ends")
        }
        Refused::Waiting { .. } => error.hint("try again later, or wait as well: with the annotation tranche.dev/wait"),
        Refused::Taken { .. }
        | Refused::Another { .. }
        | Refused::NoneFree
        | Refused::NotYours(_)
        | Refused::Unreadable(_) => error,
    }
}

/// The exit class of a refusal.
pub fn kind_of(refused: &Refused) -> Kind {
    match refused {
        Refused::NameTaken(_) => Kind::Usage,
        _ => Kind::Failed,
    }
}

impl From<LedgerError> for Error {
    fn from(error: LedgerError) -> Self {
        explain("claim", error)
    }
}
