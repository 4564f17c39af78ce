//! Whether NVIDIA's hook for podman and CRI-O gives GPUs to containers beside tranche.

use super::{Diagnosis, DoctorSubject, Finding, Fix};
use std::fs;
use tranche_core::text::some;

/// Where podman and CRI-O look for hooks without any configuration (oci-hooks(5)).
const DIRECTORIES: [&str; 2] = ["/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d"];

/// The programs of NVIDIA that such a hook names.
const PROGRAMS: [&str; 2] = ["nvidia-container-runtime-hook", "nvidia-container-toolkit"];

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    for directory in DIRECTORIES {
        let entries = fs::read_dir(subject.at(directory)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        for name in names.filter(|name| name.ends_with(".json")) {
            let path = format!("{directory}/{name}");
            let text = fs::read_to_string(subject.at(&path)).unwrap_or_default();
            if PROGRAMS.iter().any(|program| text.contains(program)) {
                found.push(path);
            }
        }
    }
    if found.is_empty() {
        return vec![Diagnosis::good("no file in a directory of hooks names it")];
    }
    found.sort();
    let moves: Vec<String> = found.iter().map(|path| format!("mv {path} {path}.off")).collect();
    let of = if subject.policy.devices > 0 {
        Diagnosis::wrong
    } else {
        Diagnosis::advice
    };
    vec![of(
        Finding::NvidiaHook,
        format!(
            "podman and CRI-O run NVIDIA's hook for every container: {}",
            some(&found)
        ),
        "a container whose image sets NVIDIA_VISIBLE_DEVICES, as CUDA's images do, gets all these GPUs without a claim, and \
         one that asks by CDI gets its files twice",
        Fix::command(moves.join(" && ")),
    )]
}
