//! Services that keep a GPU open are stopped for a change, and started again.

use std::path::Path;
use std::time::Duration;
use tranche_core::error::{Error, Result};
use tranche_host::program;

/// How long systemd may take to stop a service: more than its own limit of 90 s.
const PATIENCE: Duration = Duration::from_secs(120);

/// The services that are known to keep GPUs open, without doing work for somebody that would be lost: monitors, and the
/// daemon that keeps the driver loaded. The fabric manager is not one of them: GPUs that lose it lose their NVLinks
/// until the machine boots (NVIDIA's MIG user guide, "NVSwitch").
pub const KNOWN_SERVICES: &[&str] = &[
    "nvidia-persistenced.service",
    "nvidia-dcgm.service",
    "dcgm.service",
    "dcgm-exporter.service",
    "nvidia-dcgm-exporter.service",
    "nvsm.service",
    "nvsm-core.service",
    "nvsm-mqtt.service",
];

/// Stops `units` by `systemctl`, one after the other.
///
/// # Errors
/// Returns which one could not be stopped. Those before it are stopped.
pub(super) fn stop(systemctl: &Path, units: &[String]) -> Result<()> {
    units.iter().try_for_each(|unit| call(systemctl, &["stop", unit], unit))
}

/// Starts `units` without waiting for them: one that waits for the caller's own unit would wait for ever, at boot for
/// example (mig-parted#408).
///
/// # Errors
/// Returns which one could not be started, after all were tried.
pub(super) fn start(systemctl: &Path, units: &[String]) -> Result<()> {
    let started = units
        .iter()
        .map(|unit| call(systemctl, &["start", "--no-block", unit], unit));
    started.collect::<Vec<_>>().into_iter().collect()
}

fn call(systemctl: &Path, arguments: &[&str], unit: &str) -> Result<()> {
    let called = program::text_of(systemctl, arguments, &[], "", PATIENCE);
    called.map(drop).map_err(|error| {
        let what = format!("systemctl {} failed: {error}", arguments.join(" "));
        Error::failed(unit, what)
    })
}
