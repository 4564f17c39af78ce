//! What people ask of a device that its holders have by turns.

use serde::{Deserialize, Serialize};

/// Suspends the work of a claim until somebody resumes it, or lets it want the device again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnRequest {
    /// The claim, share or container, as for `release`.
    pub what: String,
    /// Whether it is suspended.
    pub suspend: bool,
}
