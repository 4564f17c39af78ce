//! What `tranche-driver` is asked: one JSON value per line.

use crate::machine::MachineQuestion;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// What the host has.
    Inventory,
    /// What its GPUs do now.
    Usage,
    /// What the broker asks of single GPUs, or changes.
    Machine(MachineQuestion),
}

impl Question {
    /// Whether the answer has numbers of processes. The driver gives each caller only the processes that the caller's
    /// pid namespace has, with their numbers there (NVIDIA's open kernel modules 595.45.04, `gpu_rmapi.c`,
    /// `osFindNsPid`). A process in a pid namespace of its own would get an empty list.
    pub fn has_processes(&self) -> bool {
        match self {
            Self::Inventory => false,
            Self::Usage | Self::Machine(_) => true,
        }
    }

    /// The most time for the whole answer, of a program that may be silent for `silence`. What the GPUs do now is of no
    /// use to a person who has to wait for it.
    pub fn limit(&self, silence: Duration) -> Option<Duration> {
        match self {
            Self::Inventory => None,
            Self::Usage | Self::Machine(_) => Some(silence),
        }
    }
}
