//! MIG devices that were made again at the same place and have other numbers.

use super::LockedClaims;
use crate::error::Error;
use crate::ledger::{Books, LedgerResult};
use crate::types::DeviceKey;
use serde::{Deserialize, Serialize};

/// A claim whose device has other numbers now. The claim's name is in it, so that the same change made twice is made
/// once: where two devices have each other's numbers, a device alone does not say whether its claim was moved already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MovedClaim {
    /// The name of the claim; `None` for a claim without one.
    pub name: Option<String>,
    /// The device that it is on.
    pub from: DeviceKey,
    /// The device that it is to be on.
    pub to: DeviceKey,
}

impl LockedClaims<'_> {
    /// The claims on the old device of each pair, with the new one.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read.
    pub fn to_renumber(&self, pairs: &[(DeviceKey, DeviceKey)]) -> LedgerResult<Vec<MovedClaim>> {
        let Books { books, .. } = self.books_on_disk()?;
        let claims = books.iter().flat_map(|book| &book.claims);
        let moved = claims.filter_map(|claim| {
            let (from, to) = pairs.iter().find(|(was, _)| *was == claim.device)?;
            Some(MovedClaim {
                name: claim.name.clone(),
                from: from.clone(),
                to: to.clone(),
            })
        });
        Ok(moved.collect())
    }

    /// Moves each of `claims` that is not moved yet. All count at once, so two devices may change their numbers with
    /// each other. Returns what [`LockedClaims::keep`] does.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read or written.
    pub fn renumber(&self, claims: &[MovedClaim]) -> LedgerResult<Vec<Error>> {
        let Books { books: old, .. } = self.books_on_disk()?;
        let mut new = old.clone();
        for claim in new.iter_mut().flat_map(|book| &mut book.claims) {
            let is_it = |moved: &&MovedClaim| moved.name == claim.name && moved.from == claim.device;
            if let Some(moved) = claims.iter().find(is_it) {
                claim.device = moved.to.clone();
            }
        }
        self.ledger().replace(&old, &new)?;
        self.keep(|gpu| claims.iter().any(|moved| moved.to.gpu() == gpu))
    }
}

#[cfg(test)]
mod tests {
    use crate::claims::{ClaimPart, Claims};
    use crate::ledger::{Bounds, HeldPart, KubernetesObject};
    use crate::types::DeviceKey;

    #[test]
    fn two_devices_change_their_numbers_and_keep_what_is_on_them() {
        let top = tempfile::tempdir().unwrap();
        let claims = Claims::open(top.path()).unwrap();
        let key = |ids: &str| -> DeviceKey {
            let gpu = "GPU-bb5d1807-35ed-1a19-3c32-147f9952a2da";
            format!("{gpu}/{ids}").parse().unwrap()
        };
        let object = |name: &str| KubernetesObject {
            namespace: "lab".into(),
            name: name.into(),
            uid: format!("8a1c2d3e-0000-4000-8000-00000000000{}", name.len()),
        };
        let locked = claims.lock().unwrap();
        for (name, ids) in [("a", "7/0"), ("bb", "9/0"), ("ccc", "11/0")] {
            let part = ClaimPart {
                device: key(ids),
                part: HeldPart::Whole,
                bounds: Bounds::default(),
                name: object(name).claim_on("gpu-0"),
                asked_as: "nvidia.com/claim=x".into(),
            };
            locked.reserve_for(&object(name), &[part]).unwrap();
        }
        let pairs = [(key("7/0"), key("9/0")), (key("9/0"), key("7/0"))];
        let moved = locked.to_renumber(&pairs).unwrap();
        // A process that was killed in between does it once more.
        for _ in 0..2 {
            locked.renumber(&moved).unwrap();
        }
        let books = locked.books().unwrap();
        let device = |name: &str| {
            let mut found = books
                .claims()
                .filter(|claim| claim.resource_claim() == Some(object(name)));
            found.next().unwrap().device.clone()
        };
        assert_eq!(
            [device("a"), device("bb"), device("ccc")],
            [key("9/0"), key("7/0"), key("11/0")]
        );
    }
}
