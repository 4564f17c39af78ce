//! Which devices an entry of a policy means.

use super::Placed;
use crate::types::DeviceId;
use serde::{Deserialize, Serialize};

/// The value of `devices`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceSelector {
    /// Every device of the resource.
    All,
    /// The first so many, by index.
    Count(u32),
    /// These.
    List(Vec<Placed<DeviceId>>),
}
