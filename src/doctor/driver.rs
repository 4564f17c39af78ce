//! Whether the driver and its library are there, agree, and answer.

use super::{Diagnosis, DoctorSubject};
use crate::inventory::{Degraded, Source};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let inventory = &subject.inventory;
    let Some(driver) = &inventory.driver else {
        return vec![Diagnosis::wrong(
            "no driver was found",
            "containers get no GPU",
            "install NVIDIA's driver; if it is installed elsewhere, give --driver-root",
        )];
    };
    let mut found: Vec<Diagnosis> = inventory.degraded.iter().map(of).collect();
    if found.is_empty() {
        let by = match inventory.source {
            Source::Nvml => "NVML answers",
            Source::Proc => "NVML was not asked",
        };
        let gpus = crate::text::counted(inventory.gpus.len(), "GPU");
        found.push(Diagnosis::good(format!("driver {}, {gpus}; {by}", driver.version)));
    }
    found
}

fn of(degraded: &Degraded) -> Diagnosis {
    let fix = match degraded {
        Degraded::Nvml { .. } => {
            "run nvidia-smi; after a driver update without a restart, the module is the old one: restart the machine, or \
             unload the modules and load them again"
        }
        Degraded::Device { .. } => "run nvidia-smi, and look for Xid messages in the kernel's log (dmesg)",
        Degraded::NoLibraries { .. } => "install the libraries of the same driver version as the module's",
        Degraded::Library { .. } => {
            "install that library of the same driver version; distributions have it in a package of its own"
        }
        Degraded::Lost { .. } => {
            "install these files again; if they were removed on purpose, run tranche cdi refresh --degraded once"
        }
        Degraded::NoGpu { .. } => "run nvidia-smi, and look for NVRM messages in the kernel's log (dmesg)",
    };
    Diagnosis::wrong(
        degraded.to_string(),
        "a specification that is written now lacks devices, so tranche keeps the old one",
        fix,
    )
}
