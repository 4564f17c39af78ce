//! What changes the machine that this program runs on.

use super::ControlOptions;
use super::nvml::ResidentDriver;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tranche_core::error::{Context, Result};
use tranche_core::ledger::STATE_DIR;
use tranche_core::types::HostPath;
use tranche_state::planning::PlanOptions;

impl ControlOptions {
    /// The options for the host and the ledger that a plan is made for.
    ///
    /// # Errors
    /// Returns an error if the state directory has no absolute path, or if this program does not find its own.
    pub fn of(at: &PlanOptions) -> Result<Self> {
        Ok(Self {
            state_dir: HostPath::absolute(&at.state_dir)?,
            root: at.host.roots.root.clone().unwrap_or_else(|| "/".into()),
            program: std::env::current_exe().about("tranche", "its own path is unknown")?,
            driver: Arc::new(ResidentDriver::new(at.host.discovery.program.clone())),
            systemctl: is_of_the_unit(&at.state_dir).then(systemctl).flatten(),
            nvml_patience: at.host.discovery.deadline,
        })
    }
}

/// Whether the daemons of the ledger in `state_dir` can be started as units: `tranche-mps@.service` reads the journals
/// of the usual state directory.
fn is_of_the_unit(state_dir: &Path) -> bool {
    state_dir == Path::new(STATE_DIR)
}

/// systemd's program, if systemd runs here (sd_booted(3)) and has the unit for daemons.
fn systemctl() -> Option<PathBuf> {
    const UNIT: &str = "tranche-mps@.service";
    const DIRECTORIES: [&str; 4] = [
        "/etc/systemd/system",
        "/usr/local/lib/systemd/system",
        "/usr/lib/systemd/system",
        "/lib/systemd/system",
    ];
    let has_unit = DIRECTORIES.iter().any(|dir| Path::new(dir).join(UNIT).is_file());
    if !Path::new("/run/systemd/system").is_dir() || !has_unit {
        return None;
    }
    let programs = ["/usr/bin/systemctl", "/bin/systemctl"].map(PathBuf::from);
    programs.into_iter().find(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_starts_no_daemon_of_another_state_directory() {
        assert!(is_of_the_unit(Path::new("/run/tranche")) && is_of_the_unit(Path::new("/run/tranche/")));
        assert!(!is_of_the_unit(Path::new("/run/tranche/bench")));
    }
}
