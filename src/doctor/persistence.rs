//! Whether the driver stays loaded on GPUs that nobody uses.

use super::{Diagnosis, DoctorSubject};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let gpus = &subject.inventory.gpus;
    let known: Vec<bool> = gpus.iter().filter_map(|gpu| gpu.persistence).collect();
    if known.is_empty() {
        return vec![Diagnosis::skipped("NVML reports no persistence mode")];
    }
    match known.iter().filter(|is_on| !**is_on).count() {
        0 => vec![Diagnosis::good("on")],
        off => vec![Diagnosis::advice(
            format!("off on {off} of {}", crate::text::counted(known.len(), "GPU")),
            "the first container on an unused GPU waits until the driver has started it, which takes seconds, and tens of \
             seconds on a machine with eight large GPUs",
            "systemctl enable --now nvidia-persistenced",
        )],
    }
}
