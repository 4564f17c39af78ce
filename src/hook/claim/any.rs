//! `--share any`: which of a device's equal replicas a container gets.

use super::arguments::Request;
use crate::error::{Error, Result};
use crate::ledger::{Book, Claim, ContainerName, Part, World};
use crate::types::ShareName;
use std::collections::BTreeSet;

/// The most holders that a refusal names: a line that is read has an end.
const MOST_HOLDERS: usize = 8;

/// The replica that the container holds already, or else the first one that nobody holds.
///
/// To be called under the ledger's lock, together with the claim on what it returns. A container that has the device under
/// two of its names (`0.any` and `GPU-….any`) gets one share, as it does when it names one of them twice, since engines
/// drop the second. While somebody holds the whole device, this is replica 0, and claiming it tells who that is.
///
/// # Errors
/// Every replica is held; the message names the holders.
pub(super) fn choose(
    request: &Request,
    book: &mut Book,
    container: &ContainerName,
    world: &impl World,
) -> Result<Part> {
    book.reconcile(world);
    let replicas = request.siblings.replicas();
    let mut claims = book.claims.iter();
    if claims.any(|claim| claim.part == Part::Whole) {
        return Ok(Part::share(ShareName::replica(0)));
    }
    let own = |claim: &&Claim| claim.name.is_none() && claim.holder.container.as_ref() == Some(container);
    for claim in book.claims.iter().filter(own) {
        if let Part::Shares(names) = &claim.part
            && let [name] = names.as_slice()
            && name.number().is_some_and(|number| number < replicas)
        {
            return Ok(claim.part.clone());
        }
    }
    let held = book.claims.iter().flat_map(|claim| match &claim.part {
        Part::Shares(names) => names.as_slice(),
        Part::Whole => &[],
    });
    let held: BTreeSet<u32> = held.filter_map(ShareName::number).collect();
    match (0..replicas).find(|number| !held.contains(number)) {
        Some(free) => Ok(Part::share(ShareName::replica(free))),
        None => Err(Error::failed(
            format!("{} any share", request.label),
            format!("none of its {replicas} shares is free"),
        )
        .hint(holders(&book.claims))),
    }
}

/// Who holds what, for the refusal.
fn holders(claims: &[Claim]) -> String {
    let mut shown: Vec<String> = claims
        .iter()
        .take(MOST_HOLDERS)
        .map(|claim| format!("{} holds {}", claim.who(), claim.part))
        .collect();
    if claims.len() > MOST_HOLDERS {
        shown.push(format!("{} more hold the rest", claims.len() - MOST_HOLDERS));
    }
    shown.join(", ")
}
