//! The one clock of a run.

use nix::time::{ClockId, clock_gettime};
use std::time::Duration;
use tranche_core::error::{Context, Result};

/// `CLOCK_MONOTONIC` in nanoseconds, which `tranche-load` reads too.
///
/// # Errors
/// Returns the kernel's error.
pub(crate) fn now() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).about("clock", "cannot be read")?;
    Ok(u64::try_from(Duration::from(now).as_nanos()).unwrap_or(u64::MAX))
}
