//! Whether a change of the MIG mode of a GPU waits for a reset.

use super::{Diagnosis, DoctorSubject, Finding};
use tranche_core::text::some;
use tranche_plan::inventory::MigMode;

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let gpus = subject.inventory.gpus.iter();
    let with_mig: Vec<_> = gpus.filter_map(|gpu| Some((gpu, gpu.mig?))).collect();
    if with_mig.is_empty() {
        return vec![Diagnosis::skipped("no GPU has MIG, or NVML was not asked")];
    }
    let waiting = |mode: MigMode| -> Vec<String> {
        let of_mode = with_mig
            .iter()
            .filter(|(_, mig)| mig.pending == mode && mig.current != mode);
        of_mode.map(|(gpu, _)| gpu.label()).collect()
    };
    let modes = [(MigMode::Enabled, "on"), (MigMode::Disabled, "off")];
    let found: Vec<Diagnosis> = modes
        .into_iter()
        .filter_map(|(mode, word)| Some((waiting(mode), word)).filter(|(gpus, _)| !gpus.is_empty()))
        .map(|(gpus, word)| {
            Diagnosis::wrong(
                Finding::MigPending,
                format!("MIG mode is to be turned {word} with the next reset of {}", some(&gpus)),
                "until then the GPU is in its former mode, and after the reset its devices have other names",
                "end what uses the GPU, then run nvidia-smi --gpu-reset -i GPU as root, or restart the machine; to keep the \
                 former mode, set it again with nvidia-smi -mig",
            )
        })
        .collect();
    match found.is_empty() {
        true => vec![Diagnosis::good("no change waits for a reset")],
        false => found,
    }
}
