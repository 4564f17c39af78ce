//! Whether every user of the host may open the device nodes, past the ledger.

use super::{Diagnosis, DoctorSubject, Finding, Fix};
use tranche_core::text::some;
use tranche_state::access::{Enforcement, Opened};

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
    let access = &subject.access;
    let open_to_all = format!("open to every user: {}", some(&open));
    let why = "a user can use a GPU without a claim, so the ledger binds only those who ask it";
    let mut found = Vec::new();
    match access.enforcement {
        Enforcement::NotInForce => found.push(Diagnosis::wrong(
            Finding::AccessNotInForce,
            format!("{open_to_all}, although the policy says access: enforce"),
            "the driver's module was loaded without NVreg_ModifyDeviceFiles=0, so each start of CUDA opens the nodes again",
            match access.has_option {
                false => Fix::command("tranche system protect"),
                true => Fix::by_hand(
                    "restart the machine; if its initramfs has the module, run update-initramfs -u or dracut -f first",
                ),
            },
        )),
        // Those of GPUs that the policy does not share stay open.
        Enforcement::InForce if !access.open.is_empty() => found.push(Diagnosis::wrong(
            Finding::NodesOpen,
            format!("open to every user: {}", some(&access.open)),
            why,
            Fix::safe(&["cdi", "refresh"]),
        )),
        Enforcement::Off if !open.is_empty() => found.push(Diagnosis::advice(
            Finding::NodesOpen,
            open_to_all,
            why,
            "tranche top shows the processes on each GPU; sharing.access: enforce and tranche system protect close the nodes \
             (docs/how-to/team.md); the option NVreg_DeviceFileMode=0660 of the driver is no answer by itself, because it \
             applies to /dev/nvidiactl as well, without which nobody can use any GPU",
        )),
        Enforcement::InForce => found.push(Diagnosis::good("closed to users without a claim")),
        Enforcement::Off => found.push(Diagnosis::good("only their owner and group may open them")),
    }
    if access.enforcement == Enforcement::Off {
        return found;
    }
    found.extend(access.opened.iter().map(opened));
    if let Some(seat) = &access.seat {
        let why = "users lose the devices that they hold";
        found.push(Diagnosis::wrong(
            Finding::AccessOfSeats,
            &seat.found,
            why,
            seat.fix_or("remove the rule of udev that sets the tag"),
        ));
    }
    if !access.docker.is_empty() {
        found.push(Diagnosis::advice(
            Finding::AccessByDocker,
            format!("members of the group docker: {}", some(&access.docker)),
            "they can start containers of root with every device, so that closed nodes do not bind them",
            "give them rootless podman or docker, and remove them from the group",
        ));
    }
    if !access.sudo.is_empty() {
        found.push(Diagnosis::good(format!(
            "not bound, because sudo makes them root: {}",
            some(&access.sudo)
        )));
    }
    found
}

/// What a process means that has nodes open which its user may not open.
fn opened(opened: &Opened) -> Diagnosis {
    let Opened { process, nodes } = opened;
    let found = format!("{} of uid {} has {} open", process.label(), process.uid, some(nodes));
    match process.is_of_system {
        true => Diagnosis::wrong(
            Finding::AccessOfService,
            found,
            "the service cannot open it again, and fails when it is started anew",
            format!(
                "if it only watches GPUs, add {} to sharing.monitors.users of the policy",
                process.uid
            ),
        ),
        false => Diagnosis::wrong(
            Finding::AccessWithoutClaim,
            found,
            "it was opened before the claim ended or the node was closed, or passed on by another process, and works on",
            "end it, or have its user claim the device",
        ),
    }
}
