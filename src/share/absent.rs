//! Devices that a policy names and that this host does not have.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A device that an entry of the policy names and that this host does not have. It costs itself alone: everything else
/// in the policy is planned. Otherwise one GPU that fell off the bus would keep every container from starting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AbsentDevice {
    /// What the policy asks for: `device 42`, `4 devices`.
    pub asked: String,
    /// The entry that asks: `mps of nvidia.com/gpu (line 7)`.
    pub entry: String,
    /// What is there instead, or what to write.
    pub hint: String,
}

impl fmt::Display for AbsentDevice {
    /// `device 42: is in the policy and not on this host, in mps of nvidia.com/gpu (line 7); there are 0, 1`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, entry, hint } = self;
        write!(f, "{asked}: is in the policy and not on this host, in {entry}; {hint}")
    }
}
