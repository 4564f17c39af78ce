//! What the broker knows of the host: what it has, and how it is shared now.

mod host_now;

pub use host_now::HostNow;

use std::sync::Arc;
use tranche_core::error::{Error, Result};
use tranche_core::types::{DeviceSelector, HostPath, Strategy};
use tranche_plan::inventory::Inventory;
use tranche_plan::share::{Plan, SplitDevice};

/// The host at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// What it has.
    pub inventory: Inventory,
    /// Which devices are split, and how; empty without a policy.
    pub plan: Arc<Plan>,
    /// What of it users may have: nothing under MPS.
    pub for_users: Arc<Plan>,
    /// What is wrong with the policy that somebody has written since that of the plan, which stays in force.
    pub wrong_policy: Option<String>,
    /// The program `tranche-oci`, as engines find it.
    pub hook: HostPath,
}

impl Facts {
    /// The host `inventory`, shared as `plan` says.
    pub fn new(inventory: Inventory, plan: Arc<Plan>, hook: HostPath) -> Self {
        let is_mps = |split: &SplitDevice| split.method.strategy() == Strategy::Mps;
        let for_users = match plan.devices.iter().any(is_mps) {
            false => Arc::clone(&plan),
            true => {
                let mut for_users = Plan::clone(&plan);
                for_users.devices.retain(|split| !is_mps(split));
                Arc::new(for_users)
            }
        };
        Self {
            inventory,
            plan,
            for_users,
            wrong_policy: None,
            hook,
        }
    }

    /// Refuses a user a device under MPS, and any claim where all devices are. `named` is the device that is asked for
    /// by name.
    ///
    /// # Errors
    /// Returns the refusal.
    pub(crate) fn refuse_mps(&self, named: Option<&DeviceSelector>) -> Result<()> {
        if let Some(selector) = named {
            let device = self.inventory.catalogue().get(selector)?.device();
            if self.plan.split(device).is_some() && self.for_users.split(device).is_none() {
                let what = "its shares are under MPS, and are for containers of engines that run as root";
                return Err(
                    Error::failed(device, what).hint("choose a device under time-slicing, or ask root for a claim")
                );
            }
        }
        match self.for_users.devices.is_empty() {
            false => Ok(()),
            true => Err(Error::failed("policy", "no device has shares that a user may claim")
                .hint("shares under MPS are for containers of engines that run as root")),
        }
    }
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
