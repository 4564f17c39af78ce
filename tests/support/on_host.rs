//! A command on a fake host.

use std::path::Path;
use std::process::Command;

/// Lets a program examine the fake host that is in `top`, beside its ledger and its policy.
pub fn on_host(command: &mut Command, top: &Path) {
    for (variable, path) in [
        ("TRANCHE_DRIVER_ROOT", "host"),
        ("TRANCHE_DEV_ROOT", "host"),
        ("TRANCHE_PROC_ROOT", "host/proc"),
        ("TRANCHE_SYS_ROOT", "host/sys"),
        ("TRANCHE_STATE_DIR", "state"),
        ("TRANCHE_CONFIG", "policy.yaml"),
    ] {
        command.env(variable, top.join(path));
    }
}
