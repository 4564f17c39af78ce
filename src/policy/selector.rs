//! Which devices an entry of a policy means.

use super::Placed;
use crate::types::DeviceSelector;
use serde::{Deserialize, Serialize};

/// The value of `devices`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceSet {
    /// Every device of the resource.
    All,
    /// The first so many, by index.
    Count(u32),
    /// These.
    List(Vec<Placed<DeviceSelector>>),
}
