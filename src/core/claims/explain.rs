//! The text for people about what went wrong with a claim. Hooks and the command line get it from here.

use crate::error::{Error, Kind};
use crate::ledger::{Claim, LedgerError, Refused};
use crate::text::some;
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

/// What is to be done where something is reserved for another user.
pub const RESERVED: &str = "ask for another device, or wait until its end with --wait or sharing.wait; tranche calendar shows what is reserved";

fn refusal(object: impl Display, refused: Refused) -> Error {
    let error = Error::new(kind_of(&refused), object, &refused);
    match refused {
        Refused::NoSuchClaim(_) => error.hint("tranche claim list shows those that exist"),
        Refused::OtherPromise(_) => error.hint("release it and create it again"),
        Refused::Misfit { beside, .. } => {
            let beside: Vec<String> = beside.iter().map(Claim::with_part).collect();
            let until = match &beside[..] {
                [_] => until_ended(&beside, &[]),
                _ => until_ended(&[], &beside),
            };
            error.hint(format!("refused {until}"))
        }
        Refused::NameTaken(name) => error.hint(format!("tranche claim release {name}, or choose another name")),
        Refused::InUse { .. } => {
            error.hint("stop that container, or give --force: it then keeps its access to the device until it ends")
        }
        Refused::Waiting { .. } => error.hint("try again later, or wait as well: with sharing.wait in the policy, or with the annotation tranche.dev/wait"),
        Refused::Reserved(_) => error.hint(RESERVED),
        Refused::OutOfService(_) => error.hint("ask for another device; tranche list shows them, and tranche status what is free"),
        Refused::NotForRoot(_) => error.hint("its owner allows it with tranche claim create --for-root"),
        Refused::Taken { .. }
        | Refused::Another { .. }
        | Refused::NoneFree
        | Refused::NotYours(_)
        | Refused::Unreadable(_) => error,
    }
}

/// Until when something is refused: `until claim train1 on share 3 has ended`. Each of `all` must end, and enough of
/// `enough_of`.
///
/// It is said before a policy is changed, of what the change refuses, and when that is refused.
pub fn until_ended(all: &[String], enough_of: &[String]) -> String {
    let mut parts = Vec::new();
    if !all.is_empty() {
        let have = if all.len() == 1 { "has" } else { "have" };
        parts.push(format!("{} {have} ended", some(all)));
    }
    if !enough_of.is_empty() {
        parts.push(format!("enough of {} has ended", some(enough_of)));
    }
    format!("until {}", parts.join(" and "))
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
