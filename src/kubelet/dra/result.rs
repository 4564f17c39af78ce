//! One result of an allocation. Each field is known here: one that is ignored may be what makes a result no ownership
//! of a device, as `adminAccess` does.

use super::quantity::thousandths;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use std::collections::BTreeMap;
use tranche_core::text::shown;

/// The amounts that a device of this driver is divided by.
const AMOUNTS: [&str; 3] = ["memory", "compute", "shares"];

/// A device that the scheduler has allocated (`resource.k8s.io/v1`, DeviceRequestAllocationResult).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct DeviceResult {
    /// The request, perhaps with the alternative that was chosen: `gpu/large`.
    pub(super) request: String,
    /// The pool of the device.
    pub(super) pool: String,
    /// Its name in the pool.
    pub(super) device: String,
    /// Whether the claim only watches the device, of any holder (KEP-5018).
    pub(super) admin_access: Option<bool>,
    /// The scheduler's id of the share of a device that several claims may have (KEP-5075).
    #[serde(rename = "shareID")]
    pub(super) share_id: Option<String>,
    /// What the scheduler has counted for it: what the request names, or an extended resource with a capacity
    /// (KEP-6406, alpha in 1.38), and the defaults of the rest.
    #[serde(default)]
    pub(super) consumed_capacity: BTreeMap<String, Quantity>,
    #[serde(rename = "driver")]
    _driver: IgnoredAny,
    /// Which taints the claim tolerates: the scheduler has judged it (KEP-5055).
    #[serde(default, rename = "tolerations")]
    _tolerations: IgnoredAny,
    /// What the scheduler waits for before it binds the pod (KEP-5007).
    #[serde(default, rename = "bindingConditions")]
    _binding_conditions: IgnoredAny,
    #[serde(default, rename = "bindingFailureConditions")]
    _binding_failure_conditions: IgnoredAny,
}

impl DeviceResult {
    /// Reads a result.
    ///
    /// # Errors
    /// Returns which field or amount is not known, in one line.
    pub(super) fn read(result: &Value) -> Result<Self, String> {
        let device = || shown(result["device"].as_str().unwrap_or("?")).into_owned();
        let read = Self::deserialize(result).map_err(|e| {
            format!(
                "its allocation of {} has what this version of the driver does not know: {e}; upgrade the driver",
                device()
            )
        })?;
        let is_something = |quantity: &Quantity| thousandths(quantity) != Some(0);
        let mut amounts = read.consumed_capacity.iter();
        match amounts.find(|(name, amount)| !AMOUNTS.contains(&name.as_str()) && is_something(amount)) {
            Some((name, _)) => Err(format!(
                "its allocation of {} has an amount {name:?}, and the device is divided by {} alone",
                device(),
                AMOUNTS.join(", ")
            )),
            None => Ok(read),
        }
    }
}
