//! The command line of tranche in a directory that every user may enter: a checkout may lie where users cannot go.

use super::programs;
use std::path::{Path, PathBuf};

/// Copies `tranche` into `directory`, with the programs that it executes. Returns its path.
pub(crate) fn command_line(directory: &Path) -> PathBuf {
    for (name, program) in [
        ("tranche", env!("CARGO_BIN_EXE_tranche")),
        ("tranche-broker", env!("CARGO_BIN_EXE_tranche-broker")),
        ("tranche-driver", env!("CARGO_BIN_EXE_tranche-driver")),
    ] {
        programs::install(program, directory.join(name));
    }
    directory.join("tranche")
}
