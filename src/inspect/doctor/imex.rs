//! Whether the IMEX channels and their daemon are there, where machines share memory over NVLink.

use super::{Diagnosis, DoctorSubject, Finding};
use std::fs;

/// The nodes of the domain, one address a line; the daemon's package brings it empty.
const CONFIG: &str = "/etc/nvidia-imex/nodes_config.cfg";

/// The daemon.
pub(super) const DAEMON: &str = "nvidia-imex";

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let config = fs::read_to_string(subject.at(CONFIG)).unwrap_or_default();
    let mut lines = config.lines().map(str::trim);
    if !lines.any(|line| !line.is_empty() && !line.starts_with('#')) {
        return vec![Diagnosis::skipped(format!("{CONFIG} names no node of a domain"))];
    }
    let why = "programs that share memory with other machines over NVLink fail";
    let mut found = Vec::new();
    if subject.inventory.nodes.imex_channels.is_empty() {
        found.push(Diagnosis::wrong(
            Finding::ImexChannelMissing,
            format!("{CONFIG} names nodes of a domain, and there is no channel in /dev/nvidia-caps-imex-channels"),
            why,
            "set NVreg_CreateImexChannel0=1 of the module nvidia in /etc/modprobe.d, and load it again",
        ));
    }
    if !subject.daemons.iter().any(|daemon| daemon.program == DAEMON) {
        found.push(Diagnosis::wrong(
            Finding::ImexDaemonStopped,
            format!("{CONFIG} names nodes of a domain, and {DAEMON} does not run"),
            why,
            subject.enable_of_driver(DAEMON),
        ));
    }
    if found.is_empty() {
        found.push(Diagnosis::good(format!("{DAEMON} runs, and there is a channel")));
    }
    found
}
