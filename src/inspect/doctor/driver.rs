//! Whether the driver and its library are there, agree, and answer.

use super::{Diagnosis, DoctorSubject, Finding};
use tranche_plan::inventory::{Degraded, Source, Warning, WarningKind};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let inventory = &subject.inventory;
    let Some(driver) = &inventory.driver else {
        return vec![Diagnosis::wrong(
            Finding::NoDriver,
            "no driver was found",
            "containers get no GPU",
            "install NVIDIA's driver; if it is installed elsewhere, give --driver-root",
        )];
    };
    let degraded = inventory.degraded.iter().filter(|one| !has_other_cause(subject, one));
    let mut found: Vec<Diagnosis> = degraded.map(of).collect();
    // NVML, too, may say that it is of another version than the module.
    found.extend(subject.warns_of(WarningKind::Versions).next().and_then(warning));
    found.extend(subject.warns_of(WarningKind::Other).filter_map(warning));
    let is_empty = |gpu: &&tranche_plan::inventory::Gpu| {
        gpu.is_in_mig_mode() && gpu.mig_devices.is_empty() && gpu.unnamed_instances.is_empty()
    };
    found.extend(inventory.gpus.iter().filter(is_empty).map(|gpu| {
        Diagnosis::advice(
            Finding::MigEmpty,
            format!("{} is in MIG mode and has no instances", gpu.label()),
            "there is no device for it, so no container can use it",
            "make instances (nvidia-smi mig -cgi PROFILE -C), or turn MIG off (nvidia-smi -mig 0)",
        )
    }));
    if found.is_empty() {
        let by = match inventory.source {
            Source::Nvml => "NVML answers",
            Source::Proc => "NVML was not asked",
        };
        let gpus = tranche_core::text::counted(inventory.gpus.len(), "GPU");
        found.push(Diagnosis::good(format!("driver {}, {gpus}; {by}", driver.version)));
    }
    found
}

/// Whether another result reports the cause of this one.
fn has_other_cause(subject: &DoctorSubject, degraded: &Degraded) -> bool {
    match degraded {
        // A library of another version refuses to talk to the module.
        Degraded::Nvml { .. } => subject.warns_of(WarningKind::Versions).next().is_some(),
        Degraded::Device { why, .. } => subject
            .warns_of(WarningKind::WrongNode)
            // The path of a node on the host may begin with the directory of a driver's container.
            .any(|node| {
                why.split(' ')
                    .next_back()
                    .is_some_and(|path| node.object.ends_with(path))
            }),
        Degraded::NoLibraries { .. } | Degraded::Library { .. } | Degraded::Lost { .. } | Degraded::NoGpu { .. } => {
            false
        }
    }
}

fn of(degraded: &Degraded) -> Diagnosis {
    let (finding, fix) = match degraded {
        Degraded::Nvml { .. } => (
            Finding::NvmlSilent,
            "run nvidia-smi; after a driver update without a restart, the module is the old one: restart the machine, or \
             unload the modules and load them again",
        ),
        Degraded::Device { .. } => (
            Finding::DeviceLost,
            "run nvidia-smi, and look for Xid messages in the kernel's log (dmesg)",
        ),
        Degraded::NoLibraries { .. } => (
            Finding::LibrariesMissing,
            "install the libraries of the same driver version as the module's",
        ),
        Degraded::Library { .. } => (
            Finding::LibraryMissing,
            "install that library of the same driver version; distributions have it in a package of its own",
        ),
        Degraded::Lost { .. } => (
            Finding::FilesLost,
            "install these files again; if they were removed on purpose, run tranche cdi refresh --degraded once",
        ),
        Degraded::NoGpu { .. } => (
            Finding::NoGpu,
            "run nvidia-smi, and look for NVRM messages in the kernel's log (dmesg)",
        ),
    };
    Diagnosis::wrong(
        finding,
        degraded.to_string(),
        "a specification that is written now lacks devices, so tranche keeps the old one",
        fix,
    )
}

/// The result for a warning of the examination, if no other result reports it.
fn warning(warning: &Warning) -> Option<Diagnosis> {
    let Warning { object, text, kind } = warning;
    match kind {
        WarningKind::Versions => Some(Diagnosis::wrong(
            Finding::VersionsDiffer,
            text.split(';').next().unwrap_or(text),
            "no program that uses a GPU starts, on the host or in a container",
            "restart the machine, or unload the modules and load them again; if that does not help, install both in one version",
        )),
        WarningKind::WrongNode | WarningKind::MissingNode | WarningKind::Incomplete => None,
        WarningKind::Other => Some(Diagnosis::advice(
            Finding::HostWarning,
            format!("{object}: {text}"),
            "containers may lack what the message is about",
            "correct what the message names, then run tranche cdi refresh",
        )),
    }
}
