//! What the policy says about devices that their holders have by turns.

use crate::turns::TurnTimes;
use serde::{Deserialize, Serialize};
use std::fmt::Display;
use std::time::Duration;
use tranche_core::types::{MemorySize, WaitTime, in_mib};

/// How the holders of a device have it by turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnSettings {
    /// The most claims on the device.
    pub holders: u32,
    /// For how long a holder has the device at most while others want it.
    pub turn: WaitTime,
    /// For how long it does nothing at most while others want the device.
    pub idle: WaitTime,
    /// How much memory of the machine the suspended work of the device may have.
    #[serde(rename = "host_memory_mib", with = "in_mib")]
    pub host_memory: MemorySize,
    /// Whether the policy relies on the driver although `tranche turns try` has not been successful with it.
    pub assume_tested: bool,
}

impl TurnSettings {
    /// The turn of a device without another one.
    pub const TURN: WaitTime = WaitTime::seconds(15 * 60);

    /// The time without work of a device without another one.
    pub const IDLE: WaitTime = WaitTime::seconds(3 * 60);

    /// The most holders: each may have the memory of a GPU in the memory of the machine.
    pub const MOST_HOLDERS: u32 = 64;

    /// Below this, changes may take longer than turns: others have seen 4 to 9 s for a GPU.
    const SHORT: Duration = Duration::from_secs(60);

    /// The times as the rule needs them.
    pub fn times(&self) -> TurnTimes {
        TurnTimes {
            turn: self.turn.get(),
            idle: self.idle.get(),
        }
    }

    /// The first key that has an impossible value, with what is wrong.
    pub(super) fn mistake(&self) -> Option<(&'static str, String)> {
        let wrong = |key, value: &dyn Display, hint: String| Some((key, format!("{value}; {hint}")));
        let second = Duration::from_secs(1);
        if !(2..=Self::MOST_HOLDERS).contains(&self.holders) {
            let hint = format!("write a number from 2 to {}", Self::MOST_HOLDERS);
            return wrong("holders", &self.holders, hint);
        }
        if self.turn.get() < second {
            return wrong("turn", &self.turn, "write a time like 15m".to_owned());
        }
        if self.idle.get() < second || self.idle > self.turn {
            let hint = format!("write a time from 1s to the turn, {}", self.turn);
            return wrong("idle", &self.idle, hint);
        }
        None
    }

    /// What is possible and rarely meant.
    pub(super) fn warning(&self) -> Option<String> {
        (self.turn.get() < Self::SHORT).then(|| {
            format!(
                "turn: {} is short: a change of the holder copies all its memory, which takes seconds",
                self.turn
            )
        })
    }
}
