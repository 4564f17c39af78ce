//! A claim that a program is to hold, beside what the policy says of its device.

use super::environment;
use tranche_core::error::{Error, Result};
use tranche_core::ledger::{Claim, Promise};
use tranche_core::types::HostPath;
use tranche_plan::policy::Priority;
use tranche_plan::share::{Plan, SplitDevice};

/// What the policy says of a claim.
pub(crate) struct PlannedClaim<'p> {
    /// What it is about, for messages: `gpu 0 share big`.
    pub(crate) label: String,
    /// Its device.
    pub(crate) split: &'p SplitDevice,
    promise: Promise,
    priority: Priority,
}

impl<'p> PlannedClaim<'p> {
    /// # Errors
    /// Returns an error if `plan` does not share the device of `claim`.
    pub(crate) fn of(claim: &Claim, plan: &'p Plan) -> Result<Self> {
        let split = plan.devices.iter().find(|split| split.key == claim.device);
        let (Some(split), Some(promise)) = (split, claim.part.promise()) else {
            let what = format!("holds {}, which the policy does not share", claim.device);
            return Err(Error::failed(claim.who(), what));
        };
        let first = claim.part.shares().first().and_then(|held| split.share(&held.name));
        Ok(Self {
            label: format!("{} {}", split.device, claim.part),
            split,
            promise,
            priority: first.map(|share| share.priority).unwrap_or_default(),
        })
    }

    /// The variables that a program with the claim gets.
    ///
    /// # Errors
    /// Returns an error if the share cannot be given on this host, or if its device has no UUID.
    pub(crate) fn environment(&self, state_dir: &HostPath) -> Result<Vec<(String, String)>> {
        let inside = self.split.in_container(self.promise, self.priority, state_dir)?;
        environment::of_share(self.split, inside)
    }
}
