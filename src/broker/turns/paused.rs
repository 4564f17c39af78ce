//! Whether a container is paused: nothing in its processes answers the driver, which then waits without an end
//! (checkpoint-restore/criu issues 2470 and 2775).

use std::fs;
use tranche_core::ledger::InitProcess;
use tranche_core::ledger::process::Machine;

/// Whether the processes of a container, or of a program, are frozen by a cgroup.
pub(super) fn is_paused(machine: &Machine, init: &InitProcess) -> bool {
    machine.cgroup_directories(init.pid).iter().any(|cgroup| {
        let says = |file: &str| fs::read_to_string(cgroup.join(file));
        // A cgroup is frozen with the one above it (cgroup-v2, "Core Interface Files").
        says("cgroup.events").is_ok_and(|events| events.lines().any(|line| line == "frozen 1"))
            || says("freezer.state").is_ok_and(|state| state.trim() != "THAWED")
    })
}
