//! Whether the MPS daemon of a device is running.
//!
//! A CUDA program that cannot reach its daemon runs without MPS, without any limit, and says nothing (MPS
//! documentation, "Client Attach"). So a share whose daemon is not there is not given.

use crate::error::{Error, Result};
use crate::ledger::process::Machine;
use std::path::Path;

/// The daemon's own files in its pipe directory.
const CONTROL: &str = "control";
const PID_FILE: &str = "nvidia-cuda-mps-control.pid";

/// Refuses when no daemon has `directory`.
pub(super) fn check(directory: &Path, label: &str, machine: &Machine) -> Result<()> {
    let refuse = |why: String| {
        Err(Error::failed(format!("{label} {}", directory.display()), why)
            .hint("start its MPS control daemon; tranche plan -v says how"))
    };
    if !directory.join(CONTROL).exists() {
        return refuse("no MPS daemon is there, and without one a share has no limit".to_owned());
    }
    // A daemon that was killed leaves its files. One that keeps no pid file cannot be judged by it.
    let Ok(text) = std::fs::read_to_string(directory.join(PID_FILE)) else {
        return Ok(());
    };
    match text.trim().parse::<u32>() {
        Ok(pid) if machine.process(pid).is_ok() => Ok(()),
        Ok(pid) => refuse(format!(
            "its MPS daemon, process {pid}, is gone, and without one a share has no limit"
        )),
        Err(_) => refuse(format!("{PID_FILE} holds no number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::write;

    #[test]
    fn a_daemon_is_there_or_it_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::here().unwrap();
        let check = || check(dir.path(), "gpu 0", &machine);
        assert!(check().unwrap_err().to_string().contains("no MPS daemon is there"));
        write(dir.path().join(CONTROL), "").unwrap();
        check().unwrap();
        write(dir.path().join(PID_FILE), format!("{}\n", std::process::id())).unwrap();
        check().unwrap();
        write(dir.path().join(PID_FILE), "4194305\n").unwrap();
        assert!(check().unwrap_err().to_string().contains("4194305, is gone"));
    }
}
