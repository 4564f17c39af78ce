//! Whether a container is paused: nothing in its processes answers the driver, which then waits without an end
//! (checkpoint-restore/criu issues 2470 and 2775).

use std::fs;
use std::path::Path;
use tranche_core::ledger::InitProcess;

/// Whether the processes of a container, or of a program, are frozen by a cgroup.
pub(super) fn is_paused(init: &InitProcess) -> bool {
    let lines = fs::read_to_string(format!("/proc/{}/cgroup", init.pid)).unwrap_or_default();
    lines.lines().any(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            return false;
        };
        let path = path.trim_start_matches('/');
        let of = |mount: &str, file: &str| fs::read_to_string(Path::new(mount).join(path).join(file));
        match controllers {
            // A cgroup is frozen with the one above it (cgroup-v2, "Core Interface Files").
            "" => ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].iter().any(|mount| {
                of(mount, "cgroup.events").is_ok_and(|events| events.lines().any(|line| line == "frozen 1"))
            }),
            _ if controllers.split(',').any(|name| name == "freezer") => {
                of("/sys/fs/cgroup/freezer", "freezer.state").is_ok_and(|state| state.trim() != "THAWED")
            }
            _ => false,
        }
    })
}
