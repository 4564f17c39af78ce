//! What keeps an inventory from being complete.

use serde::{Deserialize, Serialize};
use std::fmt;
use tranche_core::text::some;

/// Something that the host has, or seems to have, and that its inventory lacks.
///
/// A specification that was made from such an inventory must not replace a good one: containers would lose devices that
/// come back with the next reboot. So this travels with a saved inventory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what", deny_unknown_fields)]
pub enum Degraded {
    /// NVML was asked and did not answer everything.
    Nvml {
        /// What it did instead.
        why: String,
    },
    /// A device that exists and cannot be given to a container.
    Device {
        /// Which: `gpu 2`, `gpu 0:1`.
        device: String,
        /// What it lacks.
        why: String,
    },
    /// A driver without its libraries.
    NoLibraries {
        /// What shows that there is a driver: a path.
        shown_by: String,
    },
    /// A driver without a library that no container can do without.
    Library {
        /// The name by which programs ask for it.
        soname: String,
    },
    /// A driver without files that it had when the host was examined before.
    Lost {
        /// Their names, without directories.
        files: Vec<String>,
    },
    /// A driver without a node that every container needs beside those of its GPUs.
    ControlNode {
        /// The node, as a container names it.
        path: String,
    },
    /// A driver without a GPU.
    NoGpu {
        /// What shows that there is a driver: a path.
        shown_by: String,
    },
}

impl fmt::Display for Degraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nvml { why } => write!(f, "NVML {why}"),
            Self::Device { device, why } => write!(f, "{device} {why}"),
            Self::NoLibraries { shown_by } => write!(f, "{shown_by} shows a driver, but its libraries were not found"),
            Self::Library { soname } => write!(f, "{soname} was not found among the driver's libraries"),
            Self::Lost { files } => {
                write!(
                    f,
                    "the last refresh found these files of the same driver, and they are gone: {}",
                    some(files)
                )
            }
            Self::ControlNode { path } => write!(f, "{path} is not the driver's node, or is missing"),
            Self::NoGpu { shown_by } => write!(f, "{shown_by} shows a driver, but no GPU was found"),
        }
    }
}
