//! Whether the installed engines read the specifications.

use super::{Diagnosis, DoctorSubject};
use crate::text::some;
use crate::types::CdiVersion;

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let engines: Vec<_> = subject.engines.iter().filter(|engine| engine.is_engine()).collect();
    if engines.is_empty() {
        return vec![Diagnosis::skipped(
            "podman, docker, containerd and CRI-O were not found",
        )];
    }
    let newest: Option<(CdiVersion, String)> = subject
        .registry
        .files()
        .iter()
        .filter(|file| file.spec.kind.starts_with("nvidia.com/"))
        .filter_map(|file| Some((file.spec.version.parse().ok()?, file.path.display().to_string())))
        .max();
    let mut found = Vec::new();
    for engine in engines {
        let shown = engine.shown();
        match (engine.cdi(), &newest) {
            (None, _) if engine.version.is_none() => {
                found.push(Diagnosis::skipped(format!("{shown}: did not print its version")));
            }
            (None, _) => found.push(Diagnosis::advice(
                format!("{shown}: does not read CDI specifications"),
                "a container requests its GPU through the runtime of tranche instead",
                format!("tranche runtime configure --runtime {}", engine.name),
            )),
            (Some(reads), Some((needs, file))) if *needs > reads => found.push(Diagnosis::wrong(
                format!("{shown}: reads CDI {reads}, and {file} has {needs}"),
                "the engine does not read the file, and reports its devices as unresolvable",
                format!("write the file again with --cdi-version {reads}"),
            )),
            (Some(reads), _) => found.push(Diagnosis::good(format!("{shown}: reads CDI {reads}"))),
        }
    }
    let old: Vec<String> = subject
        .engines
        .iter()
        .filter(|engine| engine.name == "docker")
        .filter(|engine| {
            let numbers = engine.version.as_ref().map(|version| version.numbers());
            numbers.is_some_and(|numbers| ([25].as_slice()..[28, 2].as_slice()).contains(&numbers))
        })
        .map(|engine| engine.shown())
        .collect();
    if !old.is_empty() {
        found.push(Diagnosis::advice(
            format!("{}: CDI is off by default", some(&old)),
            "--device nvidia.com/gpu=0 is refused: could not select device driver \"cdi\"",
            "tranche runtime configure --runtime docker --cdi.enabled",
        ));
    }
    found
}
