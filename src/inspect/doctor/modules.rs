//! Whether the kernel modules are loaded that CUDA needs.

use super::{Diagnosis, DoctorSubject, Finding, Fix};
use tranche_plan::inventory::{ControlRole, PlatformKind, WarningKind};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    if !subject.has_driver() || subject.inventory.platform.kind != PlatformKind::Linux {
        return vec![Diagnosis::skipped(
            "the host has no NVIDIA driver with kernel modules of its own",
        )];
    }
    if is_without_nvidia(subject) {
        return vec![Diagnosis::wrong(
            Finding::ModuleNotLoaded,
            "the module nvidia is not loaded",
            "no GPU works",
            load(subject, "nvidia"),
        )];
    }
    if !has(subject, ControlRole::Uvm, "/dev/nvidia-uvm") {
        return vec![Diagnosis::wrong(
            Finding::ModuleNotLoaded,
            "the module nvidia-uvm is not loaded",
            "CUDA does not start in a container, which cannot load it",
            load(subject, "nvidia-uvm"),
        )];
    }
    vec![Diagnosis::good("nvidia and nvidia-uvm are loaded")]
}

/// What loads a module, or what has to be installed first.
fn load(subject: &DoctorSubject, module: &str) -> Fix {
    match &subject.kernel_without_modules {
        None => Fix::command(format!("modprobe {module}")),
        Some(kernel) => Fix::by_hand(format!(
            "install or build the modules of the driver for the running kernel {kernel} (dkms autoinstall), or restart the \
             machine with a kernel that has them; then run modprobe {module}"
        )),
    }
}

/// Whether the module that every GPU needs is not loaded, so that nothing else can be right.
pub(super) fn is_without_nvidia(subject: &DoctorSubject) -> bool {
    subject.has_driver()
        && subject.inventory.platform.kind == PlatformKind::Linux
        && !has(subject, ControlRole::Ctl, "/dev/nvidiactl")
}

/// The numbers of a node are known if its module is loaded, whether or not the node exists. A node with other numbers
/// is not the driver's, and has a result of its own.
fn has(subject: &DoctorSubject, role: ControlRole, path: &str) -> bool {
    let mut control = subject.inventory.nodes.control.iter();
    let is_wrong = || {
        subject
            .warns_of(WarningKind::WrongNode)
            .any(|node| node.object.ends_with(path))
    };
    control.any(|control| control.role == role) || is_wrong()
}
