//! Whether the kernel modules are loaded that CUDA needs.

use super::{Diagnosis, DoctorSubject};
use crate::inventory::{ControlRole, PlatformKind};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    if !subject.has_driver() || subject.inventory.platform.kind != PlatformKind::Linux {
        return vec![Diagnosis::skipped(
            "the host has no NVIDIA driver with kernel modules of its own",
        )];
    }
    // The numbers of a node are known if its module is loaded, whether or not the node exists.
    let control = &subject.inventory.nodes.control;
    let has = |role| control.iter().any(|control| control.role == role);
    if !has(ControlRole::Ctl) {
        return vec![Diagnosis::wrong(
            "the module nvidia is not loaded",
            "no GPU works",
            "modprobe nvidia",
        )];
    }
    if !has(ControlRole::Uvm) {
        return vec![Diagnosis::wrong(
            "the module nvidia-uvm is not loaded",
            "CUDA does not start in a container, which cannot load it",
            "modprobe nvidia-uvm",
        )];
    }
    vec![Diagnosis::good("nvidia and nvidia-uvm are loaded")]
}
