//! What root's engines trust on this host, and which of it a user other than root can change.

use super::machine::Machine;
use super::way;
use crate::doctor::{FoundError, Replaceable, Trusted};
use crate::engine_config::podman::DEFAULT_HOOKS_DIR;
use crate::engine_config::view::EngineView;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tranche_core::ledger::kept_dir;
use tranche_plan::cdi::registry::Registry;
use tranche_plan::engines::{Engine, FoundEngine};
use tranche_plan::policy::read::DEFAULT_FILE;

/// Directories of hooks that podman and CRI-O run, beside the one that podman has by default. The last one is that of
/// tranche's package.
const HOOK_DIRS: [&str; 2] = ["/etc/containers/oci/hooks.d", "/usr/share/tranche/hooks.d"];

/// What root's refresh reads without being told: the policy, and what tranche-cdi-refresh.service reads.
const SETTINGS: [&str; 2] = [DEFAULT_FILE, "/etc/tranche/refresh.env"];

/// What is asked for: everything that engines trust.
pub(super) struct Named<'a> {
    pub(super) machine: &'a Machine,
    pub(super) registry: &'a Registry,
    pub(super) engines: &'a [FoundEngine],
    pub(super) views: &'a [(Engine, Result<EngineView, FoundError>)],
    /// The programs that engines execute.
    pub(super) programs: &'a [PathBuf],
}

/// What of it a user other than root can change; `None` where nobody's owner is shown as it is: in a user namespace
/// without root, or if only an inventory of the machine is known.
pub(super) fn replaceable(named: &Named) -> Option<Vec<(Trusted, Replaceable)>> {
    let top = named.machine.root.as_deref()?;
    if named.machine.is_here && fs::metadata("/").is_ok_and(|data| data.uid() != 0) {
        return None;
    }
    let unpacked_by = (!named.machine.is_here).then(|| nix::unistd::geteuid().as_raw());
    let all = named.all(top).into_iter();
    Some(
        all.filter_map(|(trusted, path)| Some((trusted, way::replaceable(top, &path, unpacked_by)?)))
            .collect(),
    )
}

impl Named<'_> {
    fn all(&self, top: &Path) -> BTreeSet<(Trusted, PathBuf)> {
        let below = |path: &Path| top.join(path.strip_prefix("/").unwrap_or(path));
        let files = self.registry.files().iter().map(|file| &file.path);
        let refused = self.registry.problems.iter().map(|problem| &problem.path);
        let specs = self.machine.spec_dirs.iter().chain(files).chain(refused);
        let mut all: BTreeSet<_> = specs.map(|path| (Trusted::Specification, path.clone())).collect();
        let policy = self.machine.policy.as_ref().and_then(|policy| policy.file.clone());
        all.extend(policy.map(|policy| (Trusted::Policy, policy)));
        all.extend(
            self.machine
                .state_dir
                .as_deref()
                .map(|state| (Trusted::Policy, kept_dir(state))),
        );
        all.extend(SETTINGS.iter().map(|path| (Trusted::Policy, below(Path::new(path)))));
        all.extend(self.programs.iter().map(|path| (Trusted::Program, below(path))));
        all.extend(
            self.engine_files()
                .iter()
                .map(|path| (Trusted::EngineFile, below(path))),
        );
        all
    }

    /// The files and the directories that the engines of this host read: those that exist, and those that they would
    /// read if somebody made them.
    fn engine_files(&self) -> Vec<PathBuf> {
        let is_present = |engine: Engine| is_present(self.machine, self.engines, self.views, engine);
        let mut paths = Vec::new();
        for engine in Engine::ALL.iter().copied().filter(|engine| is_present(*engine)) {
            let facts = engine.facts();
            paths.extend([facts.file, facts.shipped.unwrap_or(facts.file)].map(PathBuf::from));
            paths.extend(with_files(self.machine, &format!("{}.d", facts.file)));
            if runs_hooks(engine) {
                let directories = HOOK_DIRS.iter().chain([&DEFAULT_HOOKS_DIR]);
                paths.extend(directories.flat_map(|directory| with_files(self.machine, directory)));
            }
        }
        paths
    }
}

/// The files of hooks that engines of this host run for each container, where they are.
pub(super) fn hook_files(
    machine: &Machine,
    engines: &[FoundEngine],
    views: &[(Engine, Result<EngineView, FoundError>)],
) -> Vec<PathBuf> {
    let mut all = Engine::ALL.iter().copied();
    if !all.any(|engine| runs_hooks(engine) && is_present(machine, engines, views, engine)) {
        return Vec::new();
    }
    let directories = HOOK_DIRS.iter().chain([&DEFAULT_HOOKS_DIR]);
    let files = directories.flat_map(|directory| with_files(machine, directory));
    let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "json"));
    files.filter_map(|path| machine.file(path.to_str()?)).collect()
}

/// Whether the engine runs the hooks of directories (oci-hooks(5)).
fn runs_hooks(engine: Engine) -> bool {
    matches!(engine, Engine::Podman | Engine::Crio)
}

fn is_present(
    machine: &Machine,
    engines: &[FoundEngine],
    views: &[(Engine, Result<EngineView, FoundError>)],
    engine: Engine,
) -> bool {
    match machine.is_here {
        true => engines.iter().any(|found| found.engine == engine),
        false => views.iter().any(|(of, _)| *of == engine),
    }
}

/// A directory and what is in it.
fn with_files(machine: &Machine, directory: &str) -> Vec<PathBuf> {
    let entries = machine.file(directory).and_then(|path| fs::read_dir(path).ok());
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    let files = names.map(|name| Path::new(directory).join(name));
    std::iter::once(PathBuf::from(directory)).chain(files).collect()
}
