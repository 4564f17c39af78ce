//! A claim that is made beforehand: what is asked for.

use serde::{Deserialize, Serialize, Serializer};
use tranche_core::broker::as_text;
use tranche_core::types::{CdiVersion, MemorySize, Percent, RequestedDevice, Selection, ShareName, WaitTime};

/// A claim that a person asks for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClaimRequest {
    /// Its name.
    pub name: String,
    /// At least this much memory.
    #[serde(default, serialize_with = "in_bytes", deserialize_with = "as_text::deserialize")]
    pub memory: Option<MemorySize>,
    /// At least this much compute.
    #[serde(default, with = "as_text")]
    pub compute: Option<Percent>,
    /// This many shares of one device, in addition to those with a name.
    pub shares: Option<u32>,
    /// The shares with these names.
    #[serde(default, rename = "share")]
    pub names: Vec<ShareName>,
    /// Of this device; `None` for the one whose free shares fit best. Any device, without an amount and without names:
    /// a whole one.
    pub device: Option<RequestedDevice>,
    /// Conditions on the device.
    #[serde(default, skip_serializing_if = "Selection::is_empty")]
    pub select: Selection,
    /// Whether it is released together with the first container that uses it.
    #[serde(default)]
    pub once: bool,
    /// Whether containers of engines that run as root may use it, although it belongs to another user.
    #[serde(default)]
    pub for_root: bool,
    /// Seconds after which it is released while no container uses it.
    pub ttl: Option<u64>,
    /// How long to wait for what others hold.
    #[serde(default, skip_serializing_if = "WaitTime::is_zero")]
    pub wait: WaitTime,
    /// The newest CDI version that the engine supports.
    pub cdi_version: Option<CdiVersion>,
}

/// Writes a size so that nothing is rounded: as text for people it has one decimal.
fn in_bytes<S: Serializer>(memory: &Option<MemorySize>, serializer: S) -> Result<S::Ok, S::Error> {
    as_text::serialize(&memory.map(MemorySize::bytes), serializer)
}
