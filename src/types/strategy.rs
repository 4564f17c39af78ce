//! How a device is shared.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How the holders of one device are kept apart. A device is used under one strategy at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// The driver lets the processes of several containers run in turn.
    TimeSlicing,
    /// CUDA's multi-process service: processes of several containers run at the same time, each with a ceiling.
    Mps,
    /// One container has the whole device.
    Dedicated,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Strategy::TimeSlicing => "time-slicing",
            Strategy::Mps => "mps",
            Strategy::Dedicated => "dedicated",
        })
    }
}
