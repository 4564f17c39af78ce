//! Whether a GPU was left in a mode in which only one process can use it.

use super::{Diagnosis, DoctorSubject, Finding};
use tranche_core::text::some;
use tranche_plan::inventory::ComputeMode;

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let gpus = &subject.inventory.gpus;
    let known: Vec<_> = gpus.iter().filter_map(|gpu| Some((gpu, gpu.compute_mode?))).collect();
    if known.is_empty() {
        return vec![Diagnosis::skipped("NVML reports no compute mode")];
    }
    let owned = |uuid: &str| {
        let ledger = subject.ledger.as_ref();
        ledger.is_some_and(|ledger| ledger.exclusive.iter().any(|own| own == uuid))
    };
    let changed: Vec<_> = known
        .iter()
        .filter(|(gpu, mode)| *mode != ComputeMode::Default && !owned(gpu.uuid.as_str()))
        .collect();
    if changed.is_empty() {
        return vec![Diagnosis::good("as it should be on every GPU")];
    }
    let modes: Vec<String> = changed
        .iter()
        .map(|(gpu, mode)| format!("{} {mode:?}", gpu.label()))
        .collect();
    let indices: Vec<String> = changed.iter().map(|(gpu, _)| gpu.index.to_string()).collect();
    vec![Diagnosis::advice(
        Finding::ComputeModeChanged,
        format!("a compute mode that tranche did not set: {}", some(&modes)),
        "a second process, or every one, is refused with \"all CUDA-capable devices are busy or unavailable\"",
        format!(
            "if nothing else needs it, nvidia-smi -i {} -c DEFAULT",
            indices.join(",")
        ),
    )]
}
