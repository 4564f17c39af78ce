//! What `tranche bench` has measured on this machine of the devices of a plan. Its results are in
//! `/var/lib/tranche/bench`, one file for each device, which every user may read.

use std::path::{Path, PathBuf};
use tranche_bench::kept::{Kept, MOST_BYTES, MeasuredHere};
use tranche_core::error::{Result, line};
use tranche_core::ledger::{kept_dir, read_public};
use tranche_core::types::DeviceKey;
use tranche_host::examine::HostOptions;
use tranche_plan::inventory::Driver;
use tranche_plan::share::SplitDevice;

/// The name of the directory.
const NAME: &str = "bench";

/// Where the results of `device` are kept, for the machine whose ledger is in `state_dir`.
pub fn file(state_dir: &Path, device: &DeviceKey) -> PathBuf {
    kept_dir(state_dir).join(NAME).join(Kept::file_name(device))
}

/// The results that are kept of `device`; `None` if it was never measured.
///
/// # Errors
/// Returns an error if they cannot be read, are damaged, were written by a newer tranche, or if another user could have
/// written them.
pub fn read(state_dir: &Path, device: &DeviceKey) -> Result<Option<Kept>> {
    let path = file(state_dir, device);
    let bytes = read_public(&kept_dir(state_dir).join(NAME), &Kept::file_name(device), MOST_BYTES)?;
    let kept = bytes.map(|bytes| Kept::read(&path.display().to_string(), device, &bytes));
    kept.transpose()
}

/// What was measured of each device of a plan for `host`, whose ledger is in `state_dir`. Devices that stay whole are
/// left out, and a description of another machine has none. What cannot be read counts as not measured, and is logged.
pub fn here(
    state_dir: &Path,
    host: &HostOptions,
    driver: Option<&Driver>,
    devices: &[SplitDevice],
) -> Vec<MeasuredHere> {
    if host.inventory.is_some() {
        return Vec::new();
    }
    // As a run writes it.
    let driver = driver.map_or_else(|| "unknown".to_owned(), |driver| driver.version.to_string());
    let shared = devices.iter().filter(|split| !split.method.is_whole());
    let here = shared.filter_map(|split| {
        let kept = read(state_dir, &split.key).unwrap_or_else(|error| {
            tracing::warn!("{}", line(&error));
            None
        });
        MeasuredHere::new(split, &driver, kept.as_ref())
    });
    here.collect()
}
