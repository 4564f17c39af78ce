//! What gives a device to a program that reads no CDI specification: bind mounts and variables, as flags or as lines of
//! a configuration.
//!
//! Such a program runs no hook that could hold a share, so `tranche run` holds it.

mod flags;
mod lxc;

use std::collections::BTreeSet;
use tranche_core::types::HostPath;
use tranche_plan::edits::Edits;

tranche_core::types::words! {
    /// A program that starts containers.
    pub enum ExportTarget: "program" {
        /// Apptainer and Singularity, which have the same options.
        Apptainer = "apptainer",
        /// systemd-nspawn.
        Nspawn = "nspawn",
        /// bubblewrap.
        Bwrap = "bwrap",
        /// LXC, and Incus by `raw.lxc`.
        Lxc = "lxc",
    }
}

/// What a path of the host is, as far as a configuration has to say it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostEntry {
    /// A device node with its major and minor number.
    Device(u32, u32),
    /// A directory.
    Directory,
    /// A file or a socket.
    Other,
}

/// The lines for a program that runs no hooks: each is a flag with its value, ready for a shell, or a line of the
/// configuration. `look` says what a path of the host is; `None` if it is not there.
///
/// `edits` must have no hooks: what a hook would do, mounts and variables do here.
pub fn lines(target: ExportTarget, edits: &Edits, look: impl Fn(&HostPath) -> Option<HostEntry>) -> Vec<String> {
    match target {
        ExportTarget::Apptainer => flags::apptainer(edits),
        ExportTarget::Nspawn => flags::nspawn(edits),
        ExportTarget::Bwrap => flags::bwrap(edits),
        ExportTarget::Lxc => lxc::lines(edits, look),
    }
}

/// The variables of `edits`, and the one by which the loader finds the driver's libraries: no hook writes them into the
/// image's ld.so.cache.
fn environment(edits: &Edits) -> Vec<(String, String)> {
    const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
    let mut environment: Vec<(String, String)> = edits.env.clone().into_iter().collect();
    let libraries = edits.mounts.keys().filter(|path| is_library(path.file_name()));
    let directories: BTreeSet<String> = libraries.map(|path| path.parent().to_string()).collect();
    if !directories.is_empty() && !edits.env.contains_key(LIBRARY_PATH) {
        let directories: Vec<String> = directories.into_iter().collect();
        environment.push((LIBRARY_PATH.to_owned(), directories.join(":")));
    }
    environment
}

/// Whether a program can ask the loader for this file. Plugins have other names and are opened by their path.
fn is_library(file_name: &str) -> bool {
    file_name.starts_with("lib") && file_name.contains(".so")
}

#[cfg(test)]
mod tests;
