//! Whether the fabric manager runs where GPUs are joined by NVSwitch.

use super::subject::exists;
use super::{Diagnosis, DoctorSubject, Finding};

const SOCKET: &str = "/run/nvidia-fabricmanager/socket";

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    if subject.inventory.nodes.nvswitch.is_empty() {
        return vec![Diagnosis::skipped("this host has no NVSwitch")];
    }
    match exists(&subject.at(SOCKET)) {
        true => vec![Diagnosis::good(format!("it runs ({SOCKET} exists)"))],
        false => vec![Diagnosis::wrong(
            Finding::FabricManagerStopped,
            format!("this host has NVSwitch devices, and {SOCKET} does not exist"),
            "CUDA does not start on GPUs that are joined by NVSwitch (error 802, system not yet initialized)",
            subject.enable_of_driver("nvidia-fabricmanager"),
        )],
    }
}
