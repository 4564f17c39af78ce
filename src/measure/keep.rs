//! Keeps the verdicts of a run on this machine, for `tranche plan`, `status`, `verify` and `advise`.

use std::path::Path;
use tranche_bench::kept::Kept;
use tranche_bench::results::Results;
use tranche_core::error::{Result, line};
use tranche_core::types::DeviceKey;
use tranche_inspect::measured;
use tranche_state::replace;

/// Keeps what a run found of `device` on the machine whose ledger is in `state_dir`. Every user may read it: the grades
/// that it is beside are no secret either. What was kept of other ways of sharing stays.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub fn keep(state_dir: &Path, device: &DeviceKey, results: &Results) -> Result<()> {
    let before = measured::read(state_dir, device).unwrap_or_else(|error| {
        // It is written anew.
        tracing::warn!("{}", line(&error));
        None
    });
    let kept = Kept::new(device, results, before);
    match kept.ways.is_empty() {
        true => Ok(()),
        false => replace::write(&measured::file(state_dir, device), &kept.text()?),
    }
}
