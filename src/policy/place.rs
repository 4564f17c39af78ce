//! Where something is in a policy's file, kept until planning, so that every message can say it.

use crate::types::Place;
use serde::{Deserialize, Serialize};

/// A value, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placed<T> {
    /// Where it is.
    pub place: Place,
    /// What it is.
    pub value: T,
}
