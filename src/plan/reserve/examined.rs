//! Reserving by a plan that may be older than the host.

use super::Offer;
use crate::host_file::HostFileSeen;
use crate::inventory::Inventory;
use crate::share::{Fit, Plan};
use tranche_core::error::{Context, Error};
use tranche_core::ledger::Claim;
use tranche_core::types::DeviceKey;

/// An offer of nothing that was destroyed since the host was examined for the plan.
#[derive(Debug)]
pub struct OfExamined<'a, O> {
    /// How a claim becomes known.
    pub offer: O,
    /// What the host had, of which the plan was made.
    pub inventory: &'a Inventory,
    /// `host.json` as it was before that.
    pub seen: &'a HostFileSeen,
}

impl<O: Offer> Offer for OfExamined<'_, O> {
    fn sweep(&self, claims: &[&Claim]) -> Result<(), Error> {
        self.offer.sweep(claims)
    }

    fn gone(&self, plan: &Plan) -> Result<Vec<DeviceKey>, Error> {
        let mut gone = self.offer.gone(plan)?;
        gone.extend(self.seen.gone(self.inventory).about("host", "is not known")?);
        Ok(gone)
    }

    fn allow(&self, fit: &Fit) -> Result<(), Error> {
        self.offer.allow(fit)
    }

    fn allow_ever(&self, fit: &Fit) -> Result<(), Error> {
        self.offer.allow_ever(fit)
    }

    fn publish(&self, fit: &Fit) -> Result<Option<String>, Error> {
        self.offer.publish(fit)
    }

    fn withdraw(&self) -> Result<(), Error> {
        self.offer.withdraw()
    }
}
