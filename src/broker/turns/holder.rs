//! Who holds a device that is given by turns: a claim, with the processes that use it.

use std::collections::BTreeMap;
use tranche_core::ledger::{Books, Claim, ClaimState, InitProcess};
use tranche_core::types::{DeviceKey, Strategy};
use tranche_plan::hold;
use tranche_state::turns::ClaimKey;

/// One who holds the device and uses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnHolder {
    /// The claim; that of the first container, where several use one.
    pub claim: Claim,
    /// The inits of its containers, or its process.
    pub inits: Vec<InitProcess>,
}

impl TurnHolder {
    /// All who use the device of this key by turns. A claim that nobody uses has no process to suspend.
    pub fn all(books: &Books, device: &DeviceKey) -> BTreeMap<ClaimKey, Self> {
        // The process of a reservation is the one that starts the container.
        let is_used = |claim: &Claim| claim.state != ClaimState::Reserved && claim.part.strategy() == Strategy::Turns;
        let of_device = |claim: &&Claim| claim.device == *device && is_used(claim);
        let mut holders: BTreeMap<String, Self> = BTreeMap::new();
        for claim in books.claims().filter(of_device) {
            let Some(init) = claim.process.clone() else { continue };
            // Containers that have joined a claim hold the same part.
            let holder = holders.entry(claim.part.to_string()).or_insert_with(|| Self {
                claim: claim.clone(),
                inits: Vec::new(),
            });
            holder.inits.push(init);
        }
        holders
            .into_values()
            .map(|holder| (hold::key(&holder.claim), holder))
            .collect()
    }

    /// Who it is, for people.
    pub fn who(&self) -> String {
        self.claim.who()
    }
}
