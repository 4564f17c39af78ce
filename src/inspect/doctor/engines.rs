//! Whether the installed engines read the specifications.

use super::engine_files::configure;
use super::{Diagnosis, DoctorSubject, Finding, Fix};
use std::ffi::OsStr;
use tranche_core::types::{CdiKind, CdiVersion};
use tranche_plan::cdi::registry::Loaded;
use tranche_plan::derive::RESOURCE_CLAIM_FILE;
use tranche_plan::engines::Engine;

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    if subject.engines.is_empty() {
        return vec![Diagnosis::skipped(format!("{} were not found", Engine::all_titles()))];
    }
    let mut found = Vec::new();
    for engine in &subject.engines {
        let shown = engine.shown();
        match (engine.cdi(), newest(subject, engine.engine)) {
            (None, _) if engine.version.is_none() => {
                found.push(Diagnosis::skipped(format!("{shown}: did not print its version")));
            }
            (None, _) if uses_tranche(subject, engine.engine) => {
                found.push(Diagnosis::good(format!("{shown}: has the runtime of tranche")));
            }
            (None, _) => found.push(without_cdi(subject, engine.engine, &shown)),
            (Some(reads), Some((needs, file))) if needs > reads => found.push(Diagnosis::wrong(
                Finding::EngineOutdated,
                format!("{shown}: reads CDI {reads}, and {} has {needs}", file.path.display()),
                "the engine does not read the file, and reports its devices as unresolvable",
                readable(subject, file, reads),
            )),
            (Some(reads), _) => found.push(Diagnosis::good(format!("{shown}: reads CDI {reads}"))),
        }
    }
    found
}

/// The specification with the newest version of those that `engine` may be asked for a device of.
fn newest(subject: &DoctorSubject, engine: Engine) -> Option<(CdiVersion, &Loaded)> {
    let has_pods = matches!(engine, Engine::Containerd | Engine::Crio);
    let files = subject.registry.files().iter();
    files
        .filter(|file| file.spec.kind.starts_with("nvidia.com/") && (has_pods || !is_of_pod(file)))
        .filter_map(|file| Some((file.spec.version.parse().ok()?, file)))
        .max_by_key(|(version, _): &(CdiVersion, &Loaded)| *version)
}

/// Whether it is the specification of a resource claim of Kubernetes.
fn is_of_pod(file: &Loaded) -> bool {
    let name = file.path.file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| name.starts_with(RESOURCE_CLAIM_FILE))
}

/// What lets an engine that knows the version `reads` read `file`.
fn readable(subject: &DoctorSubject, file: &Loaded, reads: CdiVersion) -> Fix {
    // A refresh writes what every installed engine reads.
    if let Some(refresh) = subject.rewrites(&file.path) {
        return refresh;
    }
    let is_claim = file.spec.kind == CdiKind::claim().to_string();
    Fix::by_hand(match (is_of_pod(file), is_claim) {
        (true, _) => "upgrade the engine: the version of a resource claim cannot be chosen".to_owned(),
        (false, true) => format!("release the claim, and create it again with --cdi-version {reads}"),
        (false, false) => format!("write the file again with --cdi-version {reads}"),
    })
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
