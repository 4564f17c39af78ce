//! What a person may choose about a specification.

use super::{HookOptions, Mode, Sharing};
use crate::error::Error;
use crate::inventory::DriverCapability;
use crate::types::{self, ImexChannelId};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// What a person may choose about a specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// What it is about.
    pub mode: Mode,
    /// Vendor, where not the mode's own.
    pub vendor: Option<String>,
    /// Class, where not the mode's own.
    pub class: Option<String>,
    /// How devices are named; each way gives every device once more.
    pub names: Vec<NameStrategy>,
    /// Which devices; empty: all that there are.
    pub devices: Vec<DeviceId>,
    /// Whether there is a device `all`.
    pub all_device: bool,
    /// The program that an engine runs for every container; `None` for a specification that needs none.
    pub hook: Option<HookOptions>,
    /// Which files of the driver a container gets.
    pub capabilities: BTreeSet<DriverCapability>,
    /// Whether it gets the sockets of the driver's daemons.
    pub sockets: bool,
    /// Whether its process joins the groups that own the device nodes (needs CDI 0.7).
    pub additional_gids: bool,
    /// Whether GPUs that share one address space with the processor, and those that do not, get kinds of their own besides
    /// (needs CDI 0.6).
    pub split_by_coherence: bool,
    /// Which devices are split; `None` where there is no policy.
    pub sharing: Option<Sharing>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::Auto,
            vendor: None,
            class: None,
            names: vec![NameStrategy::Index, NameStrategy::Uuid],
            devices: Vec::new(),
            all_device: true,
            hook: Some(HookOptions::default()),
            capabilities: EVERY_CAPABILITY.iter().map(|(c, _)| *c).collect(),
            sockets: true,
            additional_gids: true,
            split_by_coherence: false,
            sharing: None,
        }
    }
}

impl Options {
    /// Whether a container is to draw: then it gets DRI nodes and the mode-setting node.
    pub(super) fn draws(&self) -> bool {
        self.capabilities.contains(&DriverCapability::Graphics)
            || self.capabilities.contains(&DriverCapability::Display)
    }
}

/// How a device is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NameStrategy {
    /// `0`, `0:1`
    Index,
    /// `gpu0`, `mig0:1`
    TypeIndex,
    /// `GPU-…`, `MIG-…`
    Uuid,
}

impl FromStr for NameStrategy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "index" => Ok(Self::Index),
            "type-index" => Ok(Self::TypeIndex),
            "uuid" => Ok(Self::Uuid),
            _ => Err(
                Error::usage(format!("device name strategy \"{text}\""), "does not exist")
                    .hint("there are index, type-index and uuid"),
            ),
        }
    }
}

/// How a person points at a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceId {
    /// Everything.
    All,
    /// The driver's files and no device.
    None,
    /// A device. For IMEX, a GPU's index is a channel's number.
    Device(types::DeviceId),
    /// `channel7`
    Channel(ImexChannelId),
}

impl FromStr for DeviceId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let unknown = || {
            Error::usage(format!("device \"{text}\""), "cannot be read")
                .hint("give 0, 0:1, GPU-…, MIG-…, channel0, all or none")
        };
        if text == "all" {
            return Ok(Self::All);
        }
        if text == "none" {
            return Ok(Self::None);
        }
        if let Some(number) = text.strip_prefix("channel") {
            return number.parse().map(Self::Channel).map_err(|_| unknown());
        }
        text.parse().map(Self::Device).map_err(|_| unknown())
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::None => f.write_str("none"),
            Self::Device(id) => write!(f, "{id}"),
            Self::Channel(id) => write!(f, "channel{id}"),
        }
    }
}

const EVERY_CAPABILITY: [(DriverCapability, &str); 7] = [
    (DriverCapability::Compute, "compute"),
    (DriverCapability::Utility, "utility"),
    (DriverCapability::Graphics, "graphics"),
    (DriverCapability::Video, "video"),
    (DriverCapability::Display, "display"),
    (DriverCapability::Ngx, "ngx"),
    (DriverCapability::Compat32, "compat32"),
];

/// Reads a list of driver capabilities as `NVIDIA_DRIVER_CAPABILITIES` has it: names with commas between, or `all`.
///
/// # Errors
/// A name that does not exist.
pub fn capabilities_from_text(text: &str) -> Result<BTreeSet<DriverCapability>, Error> {
    let mut found = BTreeSet::new();
    for name in text.split(',').map(str::trim).filter(|n| !n.is_empty()) {
        if name == "all" {
            found.extend(EVERY_CAPABILITY.iter().map(|(c, _)| *c));
            continue;
        }
        let known = EVERY_CAPABILITY.iter().find(|(_, n)| *n == name).ok_or_else(|| {
            let all: Vec<&str> = EVERY_CAPABILITY.iter().map(|(_, n)| *n).collect();
            Error::usage(format!("driver capability \"{name}\""), "does not exist")
                .hint(format!("there are all, {}", crate::text::some(&all)))
        })?;
        found.insert(known.0);
    }
    Ok(found)
}
