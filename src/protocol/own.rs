//! What a user asks for what is the user's own.

use serde::{Deserialize, Serialize};

/// What the user releases.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct ReleaseRequest {
    /// A claim, a share, or a container.
    pub what: String,
    /// Also if a container uses it.
    #[serde(default)]
    pub force: bool,
}

/// A command without fields.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct ListRequest {}

/// A command without fields.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusRequest {}
