//! Whether a GPU was left in a mode in which only one process can use it.

use super::{Diagnosis, DoctorSubject, Finding};
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
    let changed = known
        .iter()
        .filter(|(gpu, mode)| *mode != ComputeMode::Default && !owned(gpu.uuid.as_str()));
    let found: Vec<Diagnosis> = changed
        .map(|(gpu, mode)| {
            let index = gpu.index;
            Diagnosis::advice(
                Finding::ComputeModeChanged,
                format!("gpu {index}: its compute mode is {mode:?}, which tranche did not set"),
                "a second process, or every one, is refused with \"all CUDA-capable devices are busy or unavailable\"",
                format!("if nothing else needs it, nvidia-smi -i {index} -c DEFAULT"),
            )
        })
        .collect();
    match found.is_empty() {
        true => vec![Diagnosis::good("as it should be on every GPU")],
        false => found,
    }
}
