//! `--share any`: which of a device's equal replicas a container gets.

use crate::ledger::Claim;

/// The most holders that a refusal names: a line that is read has an end.
const MOST_HOLDERS: usize = 8;

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
