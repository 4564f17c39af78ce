//! Who may open the device nodes of what the policy shares.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Who may open the device nodes of what the policy shares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Every user, as the driver has it. The ledger binds those who ask it.
    #[default]
    Open,
    /// Root, users while they have a claim, and those of [`Monitors`].
    Enforce,
}

impl Access {
    /// Whether the policy says nothing else.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Who may open all device nodes without a claim under [`Access::Enforce`]: programs that watch GPUs, and run as users
/// of their own. Each is a name or a number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "sharing.monitors", deny_unknown_fields, default)]
pub struct Monitors {
    /// Users.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub users: BTreeSet<String>,
    /// Groups.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub groups: BTreeSet<String>,
}

impl Monitors {
    /// Whether it names nobody.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
