//! What a person may choose about a specification.

use super::{HookOptions, Mode, Sharing};
use crate::inventory::DriverCapability;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use tranche_core::error::Error;
use tranche_core::types::{DeviceSelector, ImexChannelId};

/// What a person may choose about a specification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Which devices it describes.
    pub mode: Mode,
    /// Vendor; `None` for that of the mode.
    pub vendor: Option<String>,
    /// Class; `None` for that of the mode.
    pub class: Option<String>,
    /// How devices are named. Every device has a name under each strategy.
    pub names: Vec<NameStrategy>,
    /// The chosen devices; empty for all.
    pub devices: Vec<DeviceChoice>,
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
    /// Whether there are additional kinds for GPUs that share one address space with the processor and for those that
    /// do not (needs CDI 0.6).
    pub split_by_coherence: bool,
    /// Which devices are split; `None` without a policy.
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
            capabilities: DriverCapability::ALL.iter().copied().collect(),
            sockets: true,
            additional_gids: true,
            split_by_coherence: false,
            sharing: None,
        }
    }
}

impl Options {
    /// Whether a container may draw. It then gets DRI nodes and the mode-setting node.
    pub(super) fn draws(&self) -> bool {
        self.capabilities.contains(&DriverCapability::Graphics)
            || self.capabilities.contains(&DriverCapability::Display)
    }
}

tranche_core::types::words! {
    /// How a device is named.
    pub enum NameStrategy: "device name strategy" {
        /// `0`, `0:1`
        Index = "index",
        /// `gpu0`, `mig0:1`
        TypeIndex = "type-index",
        /// `GPU-…`, `MIG-…`
        Uuid = "uuid",
    }
}

/// What a person chooses for a specification: a device, or a word for several or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceChoice {
    /// Every device.
    All,
    /// The driver's files and no device.
    None,
    /// A device. In IMEX mode, the index of a GPU is the number of a channel.
    Device(DeviceSelector),
    /// `channel7`
    Channel(ImexChannelId),
}

impl DeviceChoice {
    /// A usage error about this choice.
    pub(super) fn error(&self, what: impl fmt::Display) -> Error {
        Error::usage(format!("device {self}"), what)
    }
}

impl FromStr for DeviceChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match (text, text.strip_prefix("channel")) {
            ("all", _) => Ok(Self::All),
            ("none", _) => Ok(Self::None),
            (_, Some(number)) => number.parse().map(Self::Channel),
            (_, None) => text.parse().map(Self::Device),
        }
        .map_err(|_| {
            Error::usage(format!("\"{text}\""), "not a valid device")
                .hint("expected 0, 0:1, GPU-…, MIG-…, 0000:41:00.0, /dev/nvidia0, all, none or channel0")
        })
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::None => f.write_str("none"),
            Self::Device(id) => write!(f, "{id}"),
            Self::Channel(id) => write!(f, "channel{id}"),
        }
    }
}

/// Reads a list of driver capabilities as `NVIDIA_DRIVER_CAPABILITIES` has it: names with commas between, or `all`.
///
/// # Errors
/// Returns a usage error for an unknown name.
pub fn capabilities_from_text(text: &str) -> Result<BTreeSet<DriverCapability>, Error> {
    let mut found = BTreeSet::new();
    for name in text.split(',').map(str::trim).filter(|n| !n.is_empty()) {
        match name {
            "all" => found.extend(DriverCapability::ALL),
            name => {
                let capability = name
                    .parse()
                    .map_err(|error: Error| error.and_hint("all means each of them"))?;
                found.insert(capability);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_capability_is_refused_with_the_words_that_are_known() {
        let text = capabilities_from_text("compute,grafics").unwrap_err().to_string();
        for part in [
            "\"grafics\"",
            "expected one of compute, utility, graphics, ",
            "; all means each",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(
            capabilities_from_text("all, compute").unwrap().len(),
            DriverCapability::ALL.len()
        );
    }
}
