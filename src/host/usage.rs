//! What the GPUs of a host do now: memory, utilisation and processes.

use super::scan::Scan;
use super::{DiscoveryOptions, Roots, driver, start_nvml};
use tranche_driver_protocol::{GpuUsage, Question};
use tranche_plan::inventory::Warning;

/// What NVML says that the GPUs do now.
#[derive(Debug, Default)]
pub struct Usage {
    /// The GPUs that answered, by index.
    pub gpus: Vec<GpuUsage>,
    /// What could not be asked.
    pub warnings: Vec<Warning>,
}

/// Asks NVML what the GPUs of the host at `roots` do now. [`DiscoveryOptions::deadline`] is the time for the whole
/// answer: what was answered by then is returned, even if the library hangs. A host without a driver gives nothing.
pub fn usage(roots: &Roots, options: &DiscoveryOptions) -> Usage {
    let roots = &roots.clone();
    let scan = Scan::begin(roots, options);
    let found = driver::search(&scan);
    let Some(mut child) = start_nvml(&scan, &found, &Question::Usage) else {
        return Usage {
            gpus: Vec::new(),
            warnings: scan.findings.into_warnings(),
        };
    };
    let gpus = child.finish(&scan.findings).usage;
    // The child ends before this returns.
    drop(child);
    Usage {
        gpus,
        warnings: scan.findings.into_warnings(),
    }
}
