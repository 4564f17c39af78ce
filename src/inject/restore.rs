//! Containers that are restored from a checkpoint.
//!
//! The author of the checkpoint wrote the whole configuration, and that may be the author of an image: podman from 4.4
//! on restores an image that carries a checkpoint. crun runs no hooks when it restores, so that such a container takes
//! no claim.

use super::rewrite::StartLedger;
use std::path::{Path, PathBuf};
use tranche_core::error::Result;
use tranche_core::oci::Config;
use tranche_core::root::{DeviceNumber, MountOrigin};
use tranche_plan::guarded::GuardedDevices;
use tranche_plan::host_file::HostFile;

/// Refuses to restore the container of `config` in `bundle` if it has a node of a device that needs a claim.
/// `state_dir` is the state directory of tranche.
///
/// # Errors
/// Returns the refusal, and an error if the configuration does not parse or the ledger cannot be read.
pub fn refuse_restored_devices(config: &[u8], bundle: &Path, state_dir: &Path, host: &HostFile) -> Result<()> {
    let held = StartLedger::open(state_dir, host)?.held;
    let guarded = GuardedDevices::of(&host.plan, &held, &host.inventory);
    if guarded.is_empty() {
        return Ok(());
    }
    let config = Config::parse(config)?;
    let devices = config.devices.iter();
    let devices = devices.filter_map(|device| Some((device.path.clone(), device.character?)));
    let mounts = config.mounts.iter().filter(|mount| mount.origin == MountOrigin::Host);
    let mounts = mounts.flat_map(|mount| -> Vec<(PathBuf, DeviceNumber)> {
        let source = mount.source.as_ref();
        source.map_or_else(Vec::new, |source| {
            guarded.brought(&bundle.join(source), mount.recursive)
        })
    });
    match guarded.first_open(devices.chain(mounts), &[]) {
        None => Ok(()),
        Some(open) => Err(open
            .refusal("restore")
            .and_hint("a restored container takes no claim, so start a new one")),
    }
}
