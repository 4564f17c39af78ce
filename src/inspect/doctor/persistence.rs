//! Whether the driver stays loaded on GPUs that nobody uses.

use super::{Diagnosis, DoctorSubject};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let gpus = &subject.inventory.gpus;
    let known: Vec<bool> = gpus.iter().filter_map(|gpu| gpu.persistence).collect();
    if known.is_empty() {
        return vec![Diagnosis::skipped("NVML reports no persistence mode")];
    }
    // Nothing is wrong with a host whose driver is started when it is needed, so this is no advice.
    vec![Diagnosis::good(match known.iter().filter(|is_on| !**is_on).count() {
        0 => "on".to_owned(),
        off => format!(
            "off on {off} of {}, so the first container on an unused GPU waits until the driver has started it; \
             nvidia-persistenced keeps it started",
            tranche_core::text::counted(known.len(), "GPU")
        ),
    })]
}
