//! The units by which NVIDIA's toolkit refreshes its specification (its packages, since version 1.18).

use std::path::{Path, PathBuf};
use std::time::Duration;
use tranche_core::error::{Error, Result};
use tranche_host::program;
use tranche_state::replace;

/// Where an administrator's units and masks are (systemd.unit(5)).
pub const DIRECTORY: &str = "/etc/systemd/system";

/// The units, the one first that starts the other.
const NAMES: [&str; 2] = ["nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service"];

/// What a mask leads to.
const MASK: &str = "/dev/null";

/// How long systemctl may take. It waits for units that it stops.
const PATIENCE: Duration = Duration::from_secs(90);

/// The paths at which a mask is missing; none without systemd.
///
/// Units that are not installed are masked as well: the toolkit may come later.
///
/// # Errors
/// Returns an error if a directory is in the place of a unit.
pub(super) fn to_mask(unit_dir: &Path) -> Result<Vec<PathBuf>> {
    if !unit_dir.is_dir() {
        return Ok(Vec::new());
    }
    let mut paths: Vec<PathBuf> = NAMES.iter().map(|name| unit_dir.join(name)).collect();
    if let Some(path) = paths.iter().find(|path| path.is_dir()) {
        return Err(Error::failed(path.display(), "is a directory").hint("remove it"));
    }
    paths.retain(|path| !is_mask(path));
    Ok(paths)
}

/// Whether a unit is masked at `path`.
pub(super) fn is_mask(path: &Path) -> bool {
    std::fs::read_link(path).is_ok_and(|target| target == Path::new(MASK))
}

/// Masks the unit at `path`.
///
/// # Errors
/// Returns an error if the link cannot be made.
pub(super) fn mask(path: &Path) -> Result<()> {
    replace::link(path, Path::new(MASK))
}

/// Whether systemd runs the unit of `path` now.
pub(super) fn is_active(path: &Path, unit_dir: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    systemctl(unit_dir)
        .is_some_and(|program| program::text_of(&program, &["is-active", &name], &[], "", PATIENCE).is_ok())
}

/// Lets systemd read the masks, and stops the units. Returns a line for each failure.
pub(super) fn stop(paths: &[PathBuf], unit_dir: &Path) -> Vec<String> {
    match paths {
        [] => Vec::new(),
        paths => reload_and(&["stop"], paths, unit_dir),
    }
}

/// Lets systemd read the units again, and starts these. Returns a line for each failure.
pub(super) fn start(paths: &[PathBuf], unit_dir: &Path) -> Vec<String> {
    reload_and(&["start", "--no-block"], paths, unit_dir)
}

fn reload_and(verb: &[&str], paths: &[PathBuf], unit_dir: &Path) -> Vec<String> {
    let reloaded = call(&["daemon-reload"], unit_dir);
    let called = paths
        .iter()
        .filter_map(|path| call(&[verb, &[&name(path)]].concat(), unit_dir));
    reloaded.into_iter().chain(called).collect()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Calls systemctl, if systemd reads `unit_dir` here. Returns a line about a failure, which ends nothing: the files are
/// as they should be, and count from the next boot on.
fn call(arguments: &[&str], unit_dir: &Path) -> Option<String> {
    let called = program::text_of(&systemctl(unit_dir)?, arguments, &[], "", PATIENCE);
    let error = called.err()?;
    Some(format!("systemctl {}: {error}", arguments.join(" ")))
}

/// systemd's program, if systemd runs here (sd_booted(3)) and `unit_dir` is its directory.
fn systemctl(unit_dir: &Path) -> Option<PathBuf> {
    if unit_dir != Path::new(DIRECTORY) || !Path::new("/run/systemd/system").is_dir() {
        return None;
    }
    let programs = ["/usr/bin/systemctl", "/bin/systemctl"].map(PathBuf::from);
    programs.into_iter().find(|program| program.is_file())
}
