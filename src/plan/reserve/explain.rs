//! The text for people about what could not be reserved.

use super::ReserveError;
use std::fmt::Display;
use tranche_core::claims;
use tranche_core::error::Error;
use tranche_core::ledger::{Claim, Refused, utc};
use tranche_core::text::{candidates, some};

/// The line for an error of a reservation. `object` is what it is about where the ledger itself cannot be used, and
/// `list` makes a list of claims in one line: who holds what since when.
pub fn explain(object: impl Display, error: ReserveError, list: impl FnOnce(&[Claim]) -> String) -> Error {
    match error {
        ReserveError::Offer(error) | ReserveError::OverLimit(error) => error,
        ReserveError::Ledger(error) => claims::explain(object, error),
        ReserveError::OutOfService { out, others } => {
            let mut out = out.into_iter();
            let error = match out.next() {
                Some((device, why)) => Error::failed(device, why),
                None => Error::failed(object, "its device is out of service"),
            };
            let error = out.fold(error, |error, (device, why)| {
                error.and_hint(format_args!("{device}: {why}"))
            });
            let others: Vec<String> = others.iter().map(ToString::to_string).collect();
            match others.is_empty() {
                true => error.and_hint("the policy shares no other device"),
                false => error.and_hint(format_args!("other devices: {}", candidates("", &others))),
            }
        }
        ReserveError::Behind { wish, waiting } => claims::explain(wish, Refused::Waiting { waiting }.into()),
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
            explain(object, *last, list).and_hint(waited)
        }
    }
}

/// Who holds what since when, in one line.
pub fn list(claims: &[Claim]) -> String {
    let line = |claim: &Claim| format!("{} by {} since {}", claim.part, claim.who(), utc(claim.since));
    some(&claims.iter().map(line).collect::<Vec<_>>())
}
