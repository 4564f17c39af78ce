//! What a container that gets a device may ask for in addition: other devices of the driver, IMEX channels, and the
//! management of MIG instances.

use std::collections::BTreeSet;

use super::environment::Environment;
use super::{ImexRequest, MigAccess};
use tranche_core::error::{Error, Result};
use tranche_core::types::ImexChannelId;
use tranche_plan::derive::Mode;

/// The variables with the value `enabled`, and what each adds.
const MODES: [(&str, Mode); 4] = [
    ("NVIDIA_GDS", Mode::Gds),
    ("NVIDIA_MOFED", Mode::Mofed),
    ("NVIDIA_GDRCOPY", Mode::Gdrcopy),
    ("NVIDIA_NVSWITCH", Mode::Nvswitch),
];

/// The variable that asks for IMEX channels.
pub(super) const IMEX: &str = "NVIDIA_IMEX_CHANNELS";

/// The variables of the management of MIG, which only a privileged container may set.
pub(super) const MIG_CONFIG: &str = "NVIDIA_MIG_CONFIG_DEVICES";
pub(super) const MIG_MONITOR: &str = "NVIDIA_MIG_MONITOR_DEVICES";

/// The number of IMEX channels that a driver can have (`NVreg_ImexChannelCount`).
const CHANNELS: u32 = 1 << 20;

/// The modes that are enabled, each with its variable.
pub(super) fn modes(environment: &Environment<'_>) -> impl Iterator<Item = (&'static str, Mode)> {
    MODES
        .into_iter()
        .filter(|(variable, _)| environment.is(variable, "enabled"))
}

/// The variable whose value `enabled` adds `mode`.
pub(crate) fn switch(mode: Mode) -> Option<&'static str> {
    let mut known = MODES.iter();
    known.find(|(_, other)| *other == mode).map(|(variable, _)| *variable)
}

/// The channels of a list; `object` is what has it, for messages. A list with `void` or `none` has no channels.
pub(super) fn imex<'a>(object: &str, names: impl Iterator<Item = &'a str>) -> Result<ImexRequest> {
    let names: Vec<&str> = names.collect();
    if names.contains(&"void") || names.contains(&"none") {
        return Ok(ImexRequest::default());
    }
    if names.contains(&"all") {
        return Ok(ImexRequest::All);
    }
    let mut channels: Vec<ImexChannelId> = Vec::new();
    // There may be a million.
    let mut seen = BTreeSet::new();
    for name in names {
        let channel = name.parse().ok().filter(|channel: &ImexChannelId| channel.0 < CHANNELS);
        let channel = channel.ok_or_else(|| {
            Error::usage(object, format!("\"{name}\" is not an IMEX channel"))
                .hint(format!("expected numbers from 0 to {}", CHANNELS - 1))
        })?;
        if seen.insert(channel) {
            channels.push(channel);
        }
    }
    Ok(ImexRequest::Channels(channels))
}

/// The devices that a variable of the management of MIG names.
pub(super) fn mig(variable: &str, names: &[&str], is_privileged: bool) -> Result<MigAccess> {
    if !is_privileged {
        return Err(Error::usage(variable, "needs a privileged container")
            .hint("start the container with CAP_SYS_ADMIN, or leave the variable out"));
    }
    // In any case of letters, as libnvidia-container reads it.
    if names.iter().any(|name| name.eq_ignore_ascii_case("all")) {
        return Ok(MigAccess::All);
    }
    let device = |name: &&str| {
        name.parse()
            .map_err(|wrong| Error::usage(variable, "is invalid").from_source(wrong))
    };
    names.iter().map(device).collect::<Result<_>>().map(MigAccess::Devices)
}
