//! A program of a user that runs in a share without a container.

use serde::{Deserialize, Serialize};
use tranche_core::types::{DeviceKey, Selection, WaitTime};

/// A program that holds a share from the answer on until its process has ended.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunRequest {
    /// Its process, by the pid namespace of the process that asks.
    pub pid: u32,
    /// Its name, for people.
    pub program: String,
    /// The shares, as a person names them: `0.big`, `0.any`, `any`. None if the program uses a claim.
    #[serde(default)]
    pub shares: Vec<String>,
    /// Conditions on the device, if it is any.
    #[serde(default, skip_serializing_if = "Selection::is_empty")]
    pub select: Selection,
    /// The claim of this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// How long to wait for what others hold.
    #[serde(default, skip_serializing_if = "WaitTime::is_zero")]
    pub wait: WaitTime,
}

/// The answer to [`RunRequest`].
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct RunAnswer {
    /// The variables of the share, by name.
    pub environment: Vec<(String, String)>,
    /// The device that it has by turns, whose first one may have to be waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_turns: Option<DeviceKey>,
}
