//! NVML, asked by the program `tranche-driver` ([`tranche_driver_protocol`]).
//!
//! `process` starts the program and ends it with everything that the library started, `parent` and `report` read what
//! it finds out about a host.

mod parent;
mod process;
mod report;
mod waiting;

pub(crate) use parent::{NvmlChild, start};
pub use process::{Answering, NvmlProcess};
pub(crate) use report::NvmlReport;
#[cfg(fuzzing)]
pub(crate) use report::read_pieces;
pub use waiting::{Waiting, in_silence};

use std::io;
use std::path::{Path, PathBuf};
use tranche_core::own_programs;
use tranche_driver_protocol::PROGRAM;

/// The file of the program: `given`, or that of this installation.
///
/// # Errors
/// Returns a line that names it, if it is not installed.
pub fn driver_program(given: Option<&Path>) -> io::Result<PathBuf> {
    match given {
        Some(path) => Ok(path.to_owned()),
        None => own_programs::find(PROGRAM).map_err(io::Error::other),
    }
}

/// What is wrong with a program that begins with this version.
pub fn other_version(version: &str) -> String {
    let own = tranche_core::types::PROGRAM_VERSION;
    let version = tranche_core::text::shown(version);
    format!("is asked by {PROGRAM}, which is of version {version}, and this is {own}: install both from one package")
}
