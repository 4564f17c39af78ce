//! Devices that a policy names and that this host does not have.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A device that an entry of the policy names and that this host does not have.
///
/// The rest of the policy is still planned. Otherwise one GPU that fell off the bus would keep every container from
/// starting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AbsentDevice {
    /// The place in the policy: `config.yaml:7:14`.
    pub place: String,
    /// What the policy asks for: `device 42`, `4 devices`.
    pub asked: String,
    /// Which devices this host has, or what to write instead.
    pub hint: String,
}

impl fmt::Display for AbsentDevice {
    /// `config.yaml:7:14: device 42: not found; this host has 0, 1`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, asked, hint } = self;
        write!(f, "{place}: {asked}: not found; {hint}")
    }
}
