//! What the broker knows of the host: what it has, and how it is shared now.

mod host_now;

pub use host_now::HostNow;

use std::sync::Arc;
use tranche_core::error::Result;
use tranche_core::types::HostPath;
use tranche_plan::inventory::Inventory;
use tranche_plan::share::Plan;

/// The host at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// What it has.
    pub inventory: Inventory,
    /// Which devices are split, and how; empty without a policy.
    pub plan: Plan,
    /// The program `tranche-oci`, as engines find it.
    pub hook: HostPath,
}

/// Where the facts come from. They change while the broker runs, so they are asked for each time.
pub trait HostFacts: Send + Sync {
    /// The facts as they are now. If nothing has changed, the same ones are returned, at the cost of a few system
    /// calls.
    ///
    /// # Errors
    /// Returns an error if the host cannot be examined or the policy cannot be applied to it.
    fn now(&self) -> Result<Arc<Facts>>;
}
