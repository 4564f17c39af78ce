//! MIG devices that were made again at the same place and have other numbers.

use super::LockedClaims;
use crate::error::Error;
use crate::ledger::{Books, LedgerResult};
use crate::types::DeviceKey;

impl LockedClaims<'_> {
    /// Gives what is on the old device of each pair to the new one. All pairs count at once, so two devices may change
    /// their numbers with each other. Returns what [`LockedClaims::keep`] does.
    ///
    /// # Errors
    /// Returns an error if the ledger cannot be read or written.
    pub fn renumber(&self, pairs: &[(DeviceKey, DeviceKey)]) -> LedgerResult<Vec<Error>> {
        let Books { books: old, .. } = self.books_on_disk()?;
        let mut new = old.clone();
        for claim in new.iter_mut().flat_map(|book| &mut book.claims) {
            if let Some((_, now)) = pairs.iter().find(|(was, _)| *was == claim.device) {
                claim.device = now.clone();
            }
        }
        self.ledger().replace(&old, &new)?;
        self.keep()
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
        locked
            .renumber(&[(key("7/0"), key("9/0")), (key("9/0"), key("7/0"))])
            .unwrap();
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
