//! Whether the kernel modules are loaded that CUDA needs.

use super::{Diagnosis, DoctorSubject, Finding, Fix};
use tranche_plan::inventory::{ControlRole, PlatformKind, WarningKind};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    if !subject.has_driver() || subject.inventory.platform.kind != PlatformKind::Linux {
        return vec![Diagnosis::skipped(
            "the host has no NVIDIA driver with kernel modules of its own",
        )];
    }
    // The numbers of a node are known if its module is loaded, whether or not the node exists. A node with other
    // numbers is not the driver's, and has a result of its own.
    let control = &subject.inventory.nodes.control;
    let has = |role, path: &str| {
        control.iter().any(|control| control.role == role)
            || subject
                .warns_of(WarningKind::WrongNode)
                .any(|node| node.object.ends_with(path))
    };
    if !has(ControlRole::Ctl, "/dev/nvidiactl") {
        return vec![Diagnosis::wrong(
            Finding::ModuleNotLoaded,
            "the module nvidia is not loaded",
            "no GPU works",
            Fix::command("modprobe nvidia"),
        )];
    }
    if !has(ControlRole::Uvm, "/dev/nvidia-uvm") {
        return vec![Diagnosis::wrong(
            Finding::ModuleNotLoaded,
            "the module nvidia-uvm is not loaded",
            "CUDA does not start in a container, which cannot load it",
            Fix::command("modprobe nvidia-uvm"),
        )];
    }
    vec![Diagnosis::good("nvidia and nvidia-uvm are loaded")]
}
