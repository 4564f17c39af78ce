//! The programs that engines execute because a specification or a configuration names them.

use super::file_system::FileSystem;
use super::machine::Machine;
use crate::doctor::{FoundError, Unusable, UnusableProgram};
use crate::engine_config::view::EngineView;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tranche_core::types::PROGRAM_DIRS;
use tranche_plan::cdi::registry::Registry;
use tranche_plan::engines::Engine;

/// What names each program. The paths are those of the machine.
pub(super) struct Programs(BTreeMap<PathBuf, BTreeSet<String>>);

impl Programs {
    /// The hooks of specifications, tranche's and others', and those in `hook_files` (oci-hooks(5)); the runtimes of
    /// tranche and those that an engine has as its default; and what the runtime of tranche executes.
    pub(super) fn named(
        hook_files: &[PathBuf],
        registry: &Registry,
        views: &[(Engine, Result<EngineView, FoundError>)],
        low_level: Option<&Path>,
    ) -> Self {
        let mut named: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
        for file in registry.files() {
            let devices = file.spec.devices.iter().map(|device| &device.edits);
            for hook in devices.chain([&file.spec.edits]).flat_map(|edits| &edits.hooks) {
                let by = named.entry(hook.path.clone().into()).or_default();
                by.insert(file.path.display().to_string());
            }
        }
        for view in views.iter().filter_map(|(_, view)| view.as_ref().ok()) {
            let default = view.default_runtime.as_deref().and_then(|name| view.program(name));
            let own = view.of_tranche().map(|(_, program)| program);
            for program in own.chain(default) {
                named.entry(program.clone()).or_default().insert(view.file.clone());
            }
        }
        for file in hook_files {
            let program = fs::read(file).ok().and_then(|bytes| hook_program(&bytes));
            if let Some(program) = program {
                named.entry(program).or_default().insert(file.display().to_string());
            }
        }
        let own = low_level.map(|path| (path.to_owned(), ["the runtime of tranche".to_owned()].into()));
        named.extend(own);
        Self(named)
    }

    /// Their paths. A name without a directory is searched where engines find programs.
    pub(super) fn paths(&self, machine: &Machine) -> Vec<PathBuf> {
        let paths = self.0.keys();
        paths.filter_map(|program| found(machine, program)).collect()
    }

    /// Those that exist and cannot be executed.
    pub(super) fn unusable(&self, machine: &Machine) -> Vec<UnusableProgram> {
        let unusable = self.0.iter().filter_map(|(program, by)| {
            let path = found(machine, program)?;
            let why = unusable(machine, &machine.file(path.to_str()?)?)?;
            let named_by = by.iter().cloned().collect();
            Some(UnusableProgram { path, named_by, why })
        });
        unusable.collect()
    }
}

/// The program that a file of an OCI hook names.
fn hook_program(bytes: &[u8]) -> Option<PathBuf> {
    let file: Value = serde_json::from_slice(bytes).ok()?;
    file.get("hook")?.get("path")?.as_str().map(PathBuf::from)
}

/// The path of a program on the machine.
fn found(machine: &Machine, program: &Path) -> Option<PathBuf> {
    match program.is_absolute() {
        true => Some(program.to_owned()),
        false => PROGRAM_DIRS
            .iter()
            .map(|dir| Path::new(dir).join(program))
            .find(|path| path.to_str().and_then(|path| machine.file(path)).is_some()),
    }
}

/// Why the kernel executes the file at `path` for nobody, also not for root (execve(2), EACCES).
fn unusable(machine: &Machine, path: &Path) -> Option<Unusable> {
    let data = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let mode = data.permissions().mode() & 0o7777;
    if mode & 0o111 == 0 {
        return Some(Unusable::Mode(mode));
    }
    // The mounts of another machine are not those of this one.
    let file_system = machine.is_here.then(|| FileSystem::of(path)).flatten()?;
    file_system
        .forbids_programs()
        .then_some(Unusable::NoExec(file_system.at))
}
