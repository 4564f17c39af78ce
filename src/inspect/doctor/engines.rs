//! Whether the installed engines read the specifications.

use super::engine_files::configure;
use super::{Diagnosis, DoctorSubject, Finding, Fix};
use std::path::Path;
use tranche_core::types::CdiVersion;
use tranche_plan::engines::Engine;

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    if subject.engines.is_empty() {
        return vec![Diagnosis::skipped(format!("{} were not found", Engine::all_titles()))];
    }
    let newest: Option<(CdiVersion, String)> = subject
        .registry
        .files()
        .iter()
        .filter(|file| file.spec.kind.starts_with("nvidia.com/"))
        .filter_map(|file| Some((file.spec.version.parse().ok()?, file.path.display().to_string())))
        .max();
    let mut found = Vec::new();
    for engine in &subject.engines {
        let shown = engine.shown();
        match (engine.cdi(), &newest) {
            (None, _) if engine.version.is_none() => {
                found.push(Diagnosis::skipped(format!("{shown}: did not print its version")));
            }
            (None, _) if uses_tranche(subject, engine.engine) => {
                found.push(Diagnosis::good(format!("{shown}: has the runtime of tranche")));
            }
            (None, _) => found.push(without_cdi(subject, engine.engine, &shown)),
            (Some(reads), Some((needs, file))) if *needs > reads => found.push(Diagnosis::wrong(
                Finding::EngineOutdated,
                format!("{shown}: reads CDI {reads}, and {file} has {needs}"),
                "the engine does not read the file, and reports its devices as unresolvable",
                // A refresh writes what every installed engine reads.
                subject
                    .rewrites(Path::new(file))
                    .unwrap_or_else(|| Fix::by_hand(format!("write the file again with --cdi-version {reads}"))),
            )),
            (Some(reads), _) => found.push(Diagnosis::good(format!("{shown}: reads CDI {reads}"))),
        }
    }
    found
}

fn without_cdi(subject: &DoctorSubject, engine: Engine, shown: &str) -> Diagnosis {
    let command = format!("tranche runtime configure --runtime {engine}");
    let Some(fix) = configure(subject, engine, command) else {
        return Diagnosis::good(format!(
            "{shown}: starts no pods, because its file turns their plugin off"
        ));
    };
    let why = match engine {
        // Its CRI does not know the field of the request.
        Engine::Containerd => {
            "a pod that requests a CDI device starts without it; request it through the runtime of tranche"
        }
        _ => "a container requests its GPU through the runtime of tranche instead",
    };
    let what = format!("{shown}: does not read CDI specifications");
    Diagnosis::advice(Finding::EngineWithoutCdi, what, why, fix)
}

/// Whether the configuration of the engine has the runtime of tranche.
fn uses_tranche(subject: &DoctorSubject, engine: Engine) -> bool {
    let mut views = subject.engine_files.iter().filter_map(|(_, view)| view.as_ref().ok());
    views.any(|view| view.engine == engine && view.of_tranche().next().is_some())
}
