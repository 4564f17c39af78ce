//! What is asked of the broker for layouts of MIG.

use serde::{Deserialize, Serialize};
use tranche_core::broker::ErrorFields;

/// Layouts that are applied to GPUs.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MigRequest {
    /// The layouts, as `--layout` has them: `GPU-…:3g.20gb@0,1g.5gb@4`.
    pub layouts: Vec<String>,
    /// What the GPUs had when the plan was shown, in the same form. The request is refused if they have something else
    /// by now. Empty: whatever they have.
    #[serde(default)]
    pub seen: Vec<String>,
    /// Whether the MIG mode of a GPU may change.
    #[serde(default)]
    pub may_change_mode: bool,
    /// Whether a GPU may be reset for that.
    #[serde(default)]
    pub may_reset: bool,
    /// Services that may be stopped meanwhile.
    #[serde(default)]
    pub services: Vec<String>,
    /// What of the layouts must agree with those of the policy.
    #[serde(default)]
    pub check: PolicyCheck,
}

/// What of a layout must agree with the one that the policy has for the same GPU, which the next boot makes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyCheck {
    /// All of it.
    #[default]
    Layouts,
    /// The MIG mode.
    Modes,
    /// Nothing: a person takes back the last change.
    Nothing,
}

/// The layouts of the policy and those that tranche has made are made, as at boot.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigRestoreRequest {}

/// The answer to [`MigRequest`].
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigAnswer {
    /// The UUIDs of the GPUs that were changed.
    pub changed: Vec<String>,
    /// A line for each name of a MIG device that means another one now, or none.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Whether the specifications are up to date. A broker of an earlier version leaves them to its client.
    #[serde(default)]
    pub refreshed: bool,
}

/// The answer to [`MigRestoreRequest`].
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigRestoreAnswer {
    /// The indices of the GPUs that were changed.
    pub changed: Vec<u32>,
    /// Why GPUs do not have what they are to have.
    pub failed: Vec<ErrorFields>,
    /// As [`MigAnswer::notes`].
    pub notes: Vec<String>,
}
