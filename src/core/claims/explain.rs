//! The text for people about what went wrong with a claim. Hooks and the command line get it from here.

use crate::error::{Error, Kind};
use crate::ledger::{LedgerError, Refused};
use std::fmt::Display;

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
        Refused::Waiting { .. } => error.hint("try again later, or wait as well: with sharing.wait in the policy, or with the annotation tranche.dev/wait"),
        Refused::OutOfService(_) => error.hint("ask for another device; tranche list shows them, and tranche status what is free"),
        Refused::NotForRoot(_) => error.hint("its owner allows it with tranche claim create --for-root"),
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
