//! The command line of tranche in a directory that every user may enter: a checkout may lie where users cannot go.

use crate::programs;
use std::path::{Path, PathBuf};

/// Copies `tranche` into `directory`, with the programs that it executes. Returns its path.
pub fn command_line(directory: &Path) -> PathBuf {
    for (name, program) in [
        ("tranche", programs::built("tranche")),
        ("tranche-broker", programs::built("tranche-broker")),
        ("tranche-driver", programs::built("tranche-driver")),
    ] {
        programs::install(program, directory.join(name));
    }
    directory.join("tranche")
}
