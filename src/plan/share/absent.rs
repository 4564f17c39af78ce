//! Devices that a policy names and that are left out of the plan.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A device that an entry of the policy names and that is left out: this host does not have it, or it cannot be shared
/// as it is now.
///
/// The rest of the policy is still planned. Otherwise one GPU that fell off the bus, or one whose MIG mode was changed,
/// would keep every container from starting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AbsentDevice {
    /// The place in the policy: `config.yaml:7:14`.
    pub place: String,
    /// What the policy asks for: `device 42`, `4 devices`.
    pub asked: String,
    /// Why it is left out: [`AbsentDevice::NOT_FOUND`], or what about the device keeps it from being shared.
    #[serde(default = "not_found")]
    pub why: String,
    /// Which devices this host has, or what to write instead.
    pub hint: String,
}

impl AbsentDevice {
    /// The reason for a device that this host does not have.
    pub const NOT_FOUND: &str = "not found";
}

/// Older files have no other reason.
fn not_found() -> String {
    AbsentDevice::NOT_FOUND.to_owned()
}

impl fmt::Display for AbsentDevice {
    /// `config.yaml:7:14: device 42: not found; this host has 0, 1`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            place,
            asked,
            why,
            hint,
        } = self;
        write!(f, "{place}: {asked}: {why}; {hint}")
    }
}
