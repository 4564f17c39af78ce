//! Whether every user of the host may open the device nodes, past the ledger.

use super::{Diagnosis, DoctorSubject, Finding};
use tranche_core::text::some;

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    if subject.policy.devices == 0 {
        return vec![Diagnosis::skipped(
            "no policy shares a device, so there is no claim to go past",
        )];
    }
    let nodes = subject.inventory.gpus.iter().filter_map(|gpu| gpu.node.as_ref());
    let modes: Vec<_> = nodes.filter_map(|node| Some((node, node.mode?))).collect();
    if modes.is_empty() {
        return vec![Diagnosis::skipped("no device node of a GPU exists")];
    }
    let open: Vec<String> = modes
        .iter()
        .filter(|(_, mode)| mode & 0o006 != 0)
        .map(|(node, _)| node.host.to_string())
        .collect();
    match open.is_empty() {
        true => vec![Diagnosis::good("only their owner and group may open them")],
        false => vec![Diagnosis::advice(
            Finding::NodesOpen,
            format!("open to every user: {}", some(&open)),
            "a user can use a GPU without a claim, so the ledger binds only those who ask it",
            "tranche top shows the processes on each GPU; the option NVreg_DeviceFileMode=0660 of the driver is no answer \
             by itself, because it applies to /dev/nvidiactl as well, without which nobody can use any GPU (docs/how-to/team.md)",
        )],
    }
}
