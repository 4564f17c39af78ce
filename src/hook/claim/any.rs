//! `--share any`: which of a device's equal replicas a container gets.

use super::arguments::Request;
use crate::ledger::{Claim, Promise, Share};
use crate::types::ShareName;

/// The most holders that a refusal names: a line that is read has an end.
const MOST_HOLDERS: usize = 8;

/// The replicas of the device, of which the container gets one: the one that it holds already, or else the first that is
/// free. So a container that has the device under two of its names (`0.any` and `GPU-….any`) gets one share, as it does
/// when it names one of them twice, since engines drop the second.
pub(super) fn replicas(request: &Request, promise: Promise) -> impl Iterator<Item = Share> + Clone {
    (0..request.siblings.replicas()).map(move |number| Share {
        name: ShareName::replica(number),
        promise,
    })
}

/// Who holds what, for a refusal.
pub(super) fn holders(claims: &[Claim]) -> String {
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
