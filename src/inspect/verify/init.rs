//! The environment of a container's init.

use super::engine::Container;
use serde_json::Value;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use tranche_core::bounded;
use tranche_core::ledger::Claim;

/// More than the kernel gives a new process for its arguments and its environment by default.
const MOST_BYTES: u64 = 8 << 20;

/// The variables that matter for CUDA, `NAME=VALUE`, and where they were read; nothing if neither the process nor the
/// configuration of the container can be read.
///
/// The process is asked first: it shows what the program in the container really has, also if a shell of the image has
/// changed it.
pub(super) fn environment(container: &Container, claims: &[Claim]) -> (Vec<OsString>, Option<String>) {
    let process = PathBuf::from(format!("/proc/{}/environ", container.pid));
    let of_process = || {
        let bytes = bounded::read(File::open(&process).ok()?, MOST_BYTES).ok()?;
        Some(
            bytes
                .split(|byte| *byte == 0)
                .map(|variable| OsString::from_vec(variable.to_vec()))
                .collect(),
        )
    };
    let of_config = || -> Option<Vec<OsString>> {
        let file = bounded::regular_file(container.config.as_deref()?).ok()?;
        let config: Value = serde_json::from_slice(&bounded::read(file, MOST_BYTES).ok()?).ok()?;
        let variables = config.pointer("/process/env")?.as_array()?;
        Some(
            variables
                .iter()
                .filter_map(|variable| Some(variable.as_str()?.into()))
                .collect(),
        )
    };
    let found: Option<(Vec<OsString>, String)> = match is_here(container, claims) {
        true => of_process().map(|variables| (variables, process.display().to_string())),
        false => None,
    };
    let found = found.or_else(|| Some((of_config()?, container.config.as_ref()?.display().to_string())));
    let (mut variables, source) = found.map_or((Vec::new(), None), |(variables, source)| (variables, Some(source)));
    variables.retain(matters);
    (variables, source)
}

/// Whether the number of the init means the container's process here: the engine may run on another machine.
fn is_here(container: &Container, claims: &[Claim]) -> bool {
    let by_ledger = claims
        .iter()
        .filter_map(|claim| claim.process.as_ref())
        .any(|process| process.pid == container.pid);
    // The name of its cgroup has the container's id, for every engine that makes one.
    by_ledger
        || fs::read_to_string(format!("/proc/{}/cgroup", container.pid)).is_ok_and(|text| text.contains(&container.id))
}

/// Whether CUDA, its loader or tranche-verify looks at a variable.
fn matters(variable: &OsString) -> bool {
    let variable = variable.as_bytes();
    [&b"CUDA_"[..], b"NVIDIA_", b"LD_LIBRARY_PATH="]
        .iter()
        .any(|beginning| variable.starts_with(beginning))
        && variable.contains(&b'=')
}
