//! Whether engines find the devices, and everything that a specification refers to.

use super::{Diagnosis, DoctorSubject, Finding, Fix};
use std::collections::BTreeSet;
use std::path::Path;
use tranche_core::text::some;
use tranche_plan::cdi::{Problem, ProblemKind, Reference};

pub(super) fn check(subject: &DoctorSubject) -> Vec<Diagnosis> {
    let registry = &subject.registry;
    let dirs: Vec<String> = subject.spec_dirs.iter().map(|dir| dir.display().to_string()).collect();
    let offered = registry
        .devices()
        .filter(|(name, _)| name.to_string().starts_with("nvidia.com/"))
        .count();
    let mut found: Vec<Diagnosis> = registry.problems.iter().filter_map(problem).collect();
    let broken: BTreeSet<&Path> = registry
        .problems
        .iter()
        .filter(|problem| matches!(problem.kind, ProblemKind::Reference(_)))
        .map(|problem| problem.path.as_path())
        .collect();
    for file in broken {
        found.extend(hooks(subject, file));
        // The check of the age of specifications reports the files that went with another driver.
        if !subject.is_stale(file) {
            found.extend(files(subject, file));
        }
    }
    let shadowed: Vec<String> = registry
        .shadowed()
        .iter()
        // One that is old is removed for that reason.
        .filter(|one| !subject.is_stale(&one.file))
        .map(|one| format!("{} in {}, by {}", one.name, one.file.display(), one.by.display()))
        .collect();
    if !shadowed.is_empty() {
        found.push(Diagnosis::advice(
            Finding::SpecHidden,
            format!("devices that another file hides: {}", some(&shadowed)),
            "engines use the file of the later directory, which may be the older one",
            "remove the file that is not wanted",
        ));
    }
    if offered == 0 && !subject.has_driver() && found.is_empty() {
        return vec![Diagnosis::skipped("there is no driver, and no specification")];
    }
    if offered == 0 && subject.has_no_gpu() && found.is_empty() {
        return vec![Diagnosis::skipped("there is no GPU, and no specification")];
    }
    if offered == 0 && subject.has_driver() && found.is_empty() {
        found.push(Diagnosis::wrong(
            Finding::SpecMissing,
            match dirs.is_empty() {
                true => "no specification has a device of NVIDIA".to_owned(),
                false => format!("no specification in {} has a device of NVIDIA", some(&dirs)),
            },
            "engines report \"unresolvable CDI devices\"",
            subject.refresh(),
        ));
    }
    if found.is_empty() {
        found.push(Diagnosis::good(format!(
            "engines find {} of NVIDIA in {}",
            tranche_core::text::counted(offered, "device"),
            some(&dirs)
        )));
    }
    found
}

/// The result for what an engine refuses in a file, or because of which it does not read the file.
fn problem(problem: &Problem) -> Option<Diagnosis> {
    let (finding, fix) = match problem.kind {
        ProblemKind::Invalid => (
            Finding::SpecInvalid,
            "write the file again with the program that its first lines name, or remove it; tranche cdi validate shows all \
             problems",
        ),
        ProblemKind::Name => (Finding::SpecMisnamed, "rename it to .yaml, or remove it"),
        ProblemKind::Conflict => (Finding::SpecConflict, "remove all of these files but one"),
        ProblemKind::Reference(_) => return None,
    };
    let why = "engines do not find the devices in it, and report them as unresolvable";
    Some(Diagnosis::wrong(finding, problem.to_string(), why, fix))
}

/// What `file` refers to and the host does not have.
fn references<'a>(subject: &'a DoctorSubject, file: &'a Path) -> impl Iterator<Item = (&'a Problem, &'a Reference)> {
    let problems = subject
        .registry
        .problems
        .iter()
        .filter(move |problem| problem.path == file);
    problems.filter_map(|problem| match &problem.kind {
        ProblemKind::Reference(reference) => Some((problem, reference)),
        ProblemKind::Invalid | ProblemKind::Name | ProblemKind::Conflict => None,
    })
}

/// The files and device nodes that the specification in `file` names and that the host does not have.
pub(super) fn missing_files(subject: &DoctorSubject, file: &Path) -> Vec<String> {
    let missing = references(subject, file).filter(|(_, reference)| !reference.is_hook);
    missing
        .map(|(_, reference)| reference.path.display().to_string())
        .collect()
}

/// One result for all of them: they have one cause, and one fix.
fn files(subject: &DoctorSubject, file: &Path) -> Option<Diagnosis> {
    let mut missing = missing_files(subject, file);
    // What the driver lost is a result of the driver.
    missing.retain(|path| !subject.reports_lost(Path::new(path)));
    let shown = file.display();
    let again = || {
        Fix::by_hand(format!(
            "install what is missing, or write {shown} again with the program that its first lines name"
        ))
    };
    let fix = subject.rewrites(file).unwrap_or_else(again);
    (!missing.is_empty()).then(|| {
        Diagnosis::wrong(
            Finding::SpecFilesMissing,
            format!("{shown} names what does not exist on this host: {}", some(&missing)),
            "engines refuse every container with a device that needs it",
            fix,
        )
    })
}

/// A result for each hook that cannot be started. A program of tranche must be installed before a specification names
/// it.
fn hooks(subject: &DoctorSubject, file: &Path) -> Vec<Diagnosis> {
    let is_unusable = |path: &Path| subject.unusable_programs.iter().any(|program| program.path == path);
    let hooks = references(subject, file).filter(|(_, reference)| reference.is_hook && !is_unusable(&reference.path));
    let one = |(problem, reference): (&Problem, &Reference)| {
        let is_own = reference.path.file_name().is_some_and(|name| name == "tranche-oci");
        let (finding, fix) = match (is_own, &subject.own_hook) {
            (false, _) => (
                Finding::SpecOtherHookMissing,
                Fix::by_hand("install the program, or remove the file if that program is not used any more"),
            ),
            (true, Some(own)) => {
                let again = format!(
                    "run tranche cdi generate again, with the options of the first time: it names {}",
                    own.display()
                );
                let fix = subject.rewrites(file).unwrap_or_else(|| Fix::by_hand(again));
                (Finding::SpecHookMissing, fix)
            }
            (true, None) => (
                Finding::SpecHookMissing,
                Fix::by_hand(format!(
                    "install tranche-oci as {}: tranche was installed without it",
                    reference.path.display()
                )),
            ),
        };
        let why = "engines refuse every container with a device of this file";
        Diagnosis::wrong(finding, problem.to_string(), why, fix)
    };
    hooks.map(one).collect()
}
