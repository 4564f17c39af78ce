//! Whether the driver and its library are there, agree, and answer.

use super::modules::is_without_nvidia;
use super::{Diagnosis, DoctorSubject, Finding, Fix};
use tranche_core::text::some;
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
    let mut found = together(degraded);
    // NVML, too, may say that it is of another version than the module.
    found.extend(subject.warns_of(WarningKind::Versions).next().and_then(warning));
    let of_lost = |warning: &&Warning| subject.lost().any(|file| warning.text.contains(file));
    let others = subject.warns_of(WarningKind::Other).filter(|warning| !of_lost(warning));
    found.extend(others.filter_map(warning));
    let is_empty = |gpu: &&tranche_plan::inventory::Gpu| {
        gpu.is_in_mig_mode() && gpu.mig_devices.is_empty() && gpu.unnamed_instances.is_empty()
    };
    let empty: Vec<String> = inventory.gpus.iter().filter(is_empty).map(|gpu| gpu.label()).collect();
    if !empty.is_empty() {
        found.push(Diagnosis::advice(
            Finding::MigEmpty,
            format!("in MIG mode and without instances: {}", some(&empty)),
            "there is no device for it, so no container can use it",
            "make instances (nvidia-smi mig -cgi PROFILE -C), or turn MIG off (nvidia-smi -mig 0)",
        ));
    }
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
        Degraded::Device { why, .. } if why.contains("device node") && is_without_nvidia(subject) => true,
        Degraded::Device { why, .. } => subject
            .warns_of(WarningKind::WrongNode)
            // The path of a node on the host may begin with the directory of a driver's container.
            .any(|node| {
                why.split(' ')
                    .next_back()
                    .is_some_and(|path| node.object.ends_with(path))
            }),
        // The results for device nodes or modules say what is wrong with it.
        Degraded::ControlNode { .. } => true,
        // A library that every container needs is named alone.
        Degraded::Lost { files } => {
            subject.inventory.degraded.iter().any(
                |other| matches!(other, Degraded::Library { soname } if files.len() == 1 && files.contains(soname)),
            )
        }
        Degraded::NoLibraries { .. } | Degraded::Library { .. } | Degraded::NoGpu { .. } => false,
    }
}

/// The finding that reports why a specification would not be complete.
pub(super) fn finding(subject: &DoctorSubject, degraded: &Degraded) -> Finding {
    match degraded {
        Degraded::Nvml { .. } if has_other_cause(subject, degraded) => Finding::VersionsDiffer,
        Degraded::Device { .. } if has_other_cause(subject, degraded) => Finding::NodeWrong,
        Degraded::ControlNode { path } => {
            let mut wrong = subject.warns_of(WarningKind::WrongNode);
            match wrong.any(|node| node.object.ends_with(path.as_str())) {
                true => Finding::NodeWrong,
                false => Finding::ModuleNotLoaded,
            }
        }
        _ => named(degraded).0,
    }
}

/// One result for all that have one cause: eight GPUs that lack the same are not eight faults.
fn together<'a>(degraded: impl Iterator<Item = &'a Degraded>) -> Vec<Diagnosis> {
    let mut found: Vec<(Finding, Fix, Vec<String>)> = Vec::new();
    for one in degraded {
        let (finding, fix) = named(one);
        match found.iter_mut().find(|(other, ..)| *other == finding) {
            Some((_, _, texts)) => texts.push(one.to_string()),
            None => found.push((finding, fix.into(), vec![one.to_string()])),
        }
    }
    let why = "a specification that is written now lacks devices, so tranche keeps the old one";
    let each = found.into_iter();
    each.map(|(finding, fix, texts)| Diagnosis::wrong(finding, some(&texts), why, fix))
        .collect()
}

fn named(degraded: &Degraded) -> (Finding, &'static str) {
    match degraded {
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
        Degraded::ControlNode { .. } => (Finding::NodeMissing, "run nvidia-modprobe -u -c 0"),
        Degraded::NoGpu { .. } => (
            Finding::NoGpu,
            "run nvidia-smi, and look for NVRM messages in the kernel's log (dmesg)",
        ),
    }
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
