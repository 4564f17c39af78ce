//! Devices that a policy names and that this host does not have.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A device that an entry of the policy names and that this host does not have. It costs itself alone: everything else
/// in the policy is planned. Otherwise one GPU that fell off the bus would keep every container from starting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AbsentDevice {
    /// Where the policy asks for it: `config.yaml:7:14`.
    pub place: String,
    /// What the policy asks for: `device 42`, `4 devices`.
    pub asked: String,
    /// What is there instead, or what to write.
    pub hint: String,
}

impl fmt::Display for AbsentDevice {
    /// `config.yaml:7:14: device 42: is in the policy and not on this host; there are 0, 1`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, asked, hint } = self;
        write!(f, "{place}: {asked}: is in the policy and not on this host; {hint}")
    }
}
