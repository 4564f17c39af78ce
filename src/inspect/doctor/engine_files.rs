//! Whether the configuration files of engines let them find devices and start containers.

use super::{Diagnosis, DoctorSubject, Finding, Fix};
use crate::engine_config::view::EngineView;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tranche_core::text::some;
use tranche_core::types::PROGRAM_DIRS;
use tranche_plan::engines::{Engine, FoundEngine};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let mut found: Vec<Diagnosis> = Vec::new();
    for (_, file) in &subject.engine_files {
        match file {
            Ok(view) if is_too_new(subject, view).is_some() => found.extend(is_too_new(subject, view)),
            Ok(view) => {
                found.extend(cdi(subject, view));
                found.extend(directories(subject, view));
                found.extend(runtimes(subject, view));
            }
            Err(error) => found.push(Diagnosis::wrong(
                Finding::EngineConfigInvalid,
                error.found.clone(),
                "the engine does not start with this file, or ignores it",
                "correct the file, and restart the engine",
            )),
        }
    }
    for engine in [Engine::Docker, Engine::Containerd] {
        let has_file = subject.engine_files.iter().any(|(of, _)| *of == engine);
        if !has_file {
            found.extend(off_by_default(subject, engine));
        }
    }
    if !found.is_empty() {
        return found;
    }
    vec![match subject.engine_files.len() {
        0 => Diagnosis::skipped("no engine has a configuration file"),
        _ => Diagnosis::good("CDI is on, and each runtime that is named exists"),
    }]
}

/// That CDI is off by default in the installed version of `engine`, whose files do not turn it on.
fn off_by_default(subject: &DoctorSubject, engine: Engine) -> Option<Diagnosis> {
    let mut installed = subject.engines.iter().filter(|found| found.engine == engine);
    let version = installed.find(|found| found.is_cdi_off_by_default())?.shown();
    let (why, fix) = without_cdi(subject, engine)?;
    let what = format!("{version}: CDI is off by default");
    Some(Diagnosis::advice(Finding::EngineCdiOff, what, why, fix))
}

/// That the file has a form that the installed version of the engine does not know, so it does not start.
fn is_too_new(subject: &DoctorSubject, view: &EngineView) -> Option<Diagnosis> {
    let version = view.version?;
    let mut installed = subject.engines.iter().filter(|found| found.engine == view.engine);
    let old = installed
        .find(|found| found.is_before_2() && version > NEWEST_OF_1)?
        .shown();
    let unit = view.engine.facts().unit.unwrap_or(view.engine.as_str());
    Some(Diagnosis::wrong(
        Finding::EngineConfigInvalid,
        format!(
            "{}: is of version {version}, and {old} reads version {NEWEST_OF_1} and older",
            view.file
        ),
        "the engine does not start with this file",
        format!(
            "install containerd 2, or write the file again for this one (containerd config default prints it whole) with what \
             you changed in it; then run systemctl restart {unit}"
        ),
    ))
}

/// The newest version of a configuration that containerd 1 reads (its docs/PLUGINS.md).
const NEWEST_OF_1: u64 = 2;

/// What happens if CDI is off in an engine, and what turns it on. `None` if the engine starts no container that could
/// ask for a device, because its plugin for that is turned off.
fn without_cdi(subject: &DoctorSubject, engine: Engine) -> Option<(&'static str, Fix)> {
    let why = match engine {
        Engine::Docker => "--device nvidia.com/gpu=0 is refused: could not select device driver \"cdi\"",
        _ => "pods that request a GPU by CDI get none, or are refused",
    };
    let unit = engine.facts().unit.unwrap_or(engine.as_str());
    let command = format!("tranche runtime configure --runtime {engine} --cdi.enabled && systemctl restart {unit}");
    Some((why, configure(subject, engine, command)?))
}

/// `command`, which lets `tranche runtime configure` change the file of `engine`, or what has to be done before it.
/// `None` if the engine needs no change, because its plugin that would use it is turned off.
pub(super) fn configure(subject: &DoctorSubject, engine: Engine, command: String) -> Option<Fix> {
    let Some((_, error)) = subject.unchangeable.iter().find(|(of, _)| *of == engine) else {
        return Some(Fix::command(command));
    };
    let views = subject.engine_files.iter().filter_map(|(_, view)| view.as_ref().ok());
    if views.into_iter().any(|view| view.engine == engine && view.is_off) {
        return None;
    }
    let first = error
        .hint
        .as_deref()
        .unwrap_or("correct what tranche runtime configure names");
    Some(Fix::by_hand(format!("{first}; then run {command}")))
}

/// Whether the engine reads specifications at all.
fn cdi(subject: &DoctorSubject, view: &EngineView) -> Option<Diagnosis> {
    let key = match view.engine {
        Engine::Docker => "features.cdi",
        _ => "enable_cdi",
    };
    match view.cdi {
        Some(true) => None,
        None => off_by_default(subject, view.engine),
        Some(false) => {
            let (why, fix) = without_cdi(subject, view.engine)?;
            let what = format!("{}: {key} is false", view.file);
            Some(Diagnosis::wrong(Finding::EngineCdiOff, what, why, fix))
        }
    }
}

/// Whether the engine reads the directories with the specifications.
fn directories(subject: &DoctorSubject, view: &EngineView) -> Option<Diagnosis> {
    let read: BTreeSet<PathBuf> = view
        .spec_dirs
        .as_ref()?
        .iter()
        .map(|dir| real(&subject.at_path(dir)))
        .collect();
    let files = subject.registry.files().iter();
    let of_nvidia = files.filter(|file| file.spec.kind.starts_with("nvidia.com/"));
    let needed: BTreeSet<&Path> = of_nvidia.filter_map(|file| file.path.parent()).collect();
    let unread: Vec<String> = needed
        .into_iter()
        .filter(|dir| !read.contains(&real(dir)))
        .map(|dir| dir.display().to_string())
        .collect();
    let key = view.spec_dirs_key;
    (!unread.is_empty()).then(|| {
        Diagnosis::wrong(
            Finding::EngineDirectories,
            format!("{}: {key} does not have {}", view.file, some(&unread)),
            "the engine reports the devices in it as unresolvable",
            format!(
                "add {} to {key}, or remove {key}; {}",
                some(&unread),
                view.engine.restart()
            ),
        )
    })
}

fn real(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Whether the default runtime is one that exists, and each runtime of tranche as well. Others may be left of programs
/// that no container uses.
fn runtimes(subject: &DoctorSubject, view: &EngineView) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    let wrong = |what: String, why: &str, fix: Fix| Diagnosis::wrong(Finding::EngineRuntimeMissing, what, why, fix);
    let file = &view.file;
    // The plugin of pods does not start without its default runtime, and containerd itself does.
    let mut installed = subject.engines.iter().filter(|found| found.engine == view.engine);
    let has_own = !(view.replaces_runtimes && installed.any(FoundEngine::is_before_2));
    let default = view.default_runtime.as_deref().or((!has_own).then_some("runc"));
    if let Some(name) = default
        && !(has_own && view.is_built_in(name))
        && !view.runtimes.iter().any(|(defined, _)| defined == name)
    {
        let fix = format!(
            "define the runtime {name} in this file, or name another one; {}",
            view.engine.restart()
        );
        let what = format!("{file}: the default runtime {name} is not defined");
        found.push(wrong(
            what,
            "the engine does not start, or starts no container",
            fix.into(),
        ));
    }
    let default = view
        .default_runtime
        .as_deref()
        .and_then(|name| Some((name, view.program(name)?)));
    let named: BTreeSet<(&str, &PathBuf)> = view.of_tranche().chain(default).collect();
    for (name, program) in named.into_iter().filter(|(_, program)| !is_installed(subject, program)) {
        let what = format!(
            "{file}: {}, the program of the runtime {name}, does not exist",
            program.display()
        );
        found.push(wrong(
            what,
            "no container with this runtime starts",
            without_program(view, program),
        ));
    }
    found
}

/// What corrects a runtime without its program. tranche removes its own alone; what another program wrote stays.
fn without_program(view: &EngineView, program: &Path) -> Fix {
    let engine = view.engine;
    match program.file_name().is_some_and(|name| name == "tranche-runtime") {
        true => Fix::by_hand(format!(
            "install it, or run tranche runtime unconfigure --runtime {engine}"
        )),
        false => Fix::by_hand(format!(
            "install it, or let containers use tranche's runtime: tranche runtime configure --runtime {engine} \
             --set-as-default; {}",
            engine.restart()
        )),
    }
}

/// Whether a program of the host exists. A name without a directory is looked for where engines find programs.
fn is_installed(subject: &DoctorSubject, program: &Path) -> bool {
    match program.is_absolute() {
        true => subject.at_path(program).is_file(),
        false => PROGRAM_DIRS.iter().any(|dir| subject.at(dir).join(program).is_file()),
    }
}
