//! The configuration files of engines.

use super::machine::Machine;
use crate::doctor::FoundError;
use crate::engine_config::Settings;
use crate::engine_config::changes::ReadConfiguration;
use crate::engine_config::check::files_in;
use crate::engine_config::containerd::{self, Version};
use crate::engine_config::document::{ConfigFile, Syntax};
use crate::engine_config::view::EngineView;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Result};
use tranche_plan::engines::{DropIns, Engine, FoundEngine};

/// What the file of an engine says, or why it cannot be read.
type Viewed = (Engine, Result<EngineView, FoundError>);

/// What the files of each engine say, and which of them `tranche runtime configure` does not change. Of the machine
/// that this program runs on, only those of engines that are installed count. An engine without a file is left out.
pub(super) fn read(machine: &Machine, installed: &[FoundEngine]) -> (Vec<Viewed>, Vec<(Engine, FoundError)>) {
    let is_installed = |engine: &Engine| !machine.is_here || installed.iter().any(|one| one.engine == *engine);
    let (mut views, mut unchangeable) = (Vec::new(), Vec::new());
    for engine in Engine::ALL.iter().copied().filter(is_installed) {
        match files(machine, engine) {
            Ok(None) => {}
            Ok(Some((main, context))) => {
                let view = EngineView::of(engine, &context);
                views.push((engine, view.map_err(|error| FoundError::of(&error).without_hint())));
                let refused = added(engine, &main, &context).err();
                unchangeable.extend(refused.map(|error| (engine, FoundError::of(&error))));
            }
            Err(error) => views.push((engine, Err(FoundError::of(&error).without_hint()))),
        }
    }
    (views, unchangeable)
}

/// Adds the runtime to the configuration, in memory.
fn added(engine: Engine, main: &ConfigFile, context: &ConfigFile) -> Result<()> {
    let read = ReadConfiguration {
        main,
        drop_in: None,
        context,
        before: &[],
        after: &[],
        new: Version::of_new_file(false),
    };
    let settings = Settings {
        name: "tranche".parse()?,
        path: "/usr/bin/tranche-runtime".to_owned(),
        is_default: false,
        cdi: true,
        annotations: None,
        hooks_dir: None,
    };
    read.edits(engine, &settings).map(drop)
}

/// The main file of an engine, and all that it reads, merged.
fn files(machine: &Machine, engine: Engine) -> Result<Option<(ConfigFile, ConfigFile)>> {
    let main = engine.facts().file;
    let Some(first) = one(machine, engine, main)? else {
        // Its directory may have files all the same.
        return match more(machine, engine, None)? {
            files if files.is_empty() => Ok(None),
            files => {
                let empty = ConfigFile::read(main, Syntax::of(engine), "")?;
                let context = ConfigFile::together(&empty, files.iter());
                Ok(Some((empty, context)))
            }
        };
    };
    let files = more(machine, engine, Some(&first))?;
    let context = ConfigFile::together(&first, files.iter());
    Ok(Some((first, context)))
}

/// One file, named as the machine names it; `None` if it does not exist.
fn one(machine: &Machine, engine: Engine, path: &str) -> Result<Option<ConfigFile>> {
    let Some(real) = machine.file(path) else {
        return Ok(None);
    };
    let text = match fs::read_to_string(real) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        text => text.about(path, "cannot be read")?,
    };
    ConfigFile::read(path, Syntax::of(engine), &text).map(Some)
}

/// The files that the engine reads after its main file, in this order. What podman reads before it sets nothing that
/// matters here and that the main file does not set as well.
fn more(machine: &Machine, engine: Engine, main: Option<&ConfigFile>) -> Result<Vec<ConfigFile>> {
    let in_directory = |directory: &str, ending: &str| -> Vec<PathBuf> {
        let files = machine.file(directory).map(|directory| files_in(&directory));
        let names = files
            .into_iter()
            .flatten()
            .filter_map(|file| file.file_name().map(PathBuf::from));
        let names = names.filter(|name| name.to_string_lossy().ends_with(ending));
        names.map(|name| Path::new(directory).join(name)).collect()
    };
    let facts = engine.facts();
    let mut paths: Vec<PathBuf> = facts
        .shipped
        .iter()
        .filter(|_| main.is_none())
        .map(PathBuf::from)
        .collect();
    paths.extend(match (facts.drop_ins, main) {
        // Imports are patterns of absolute paths, which only the machine itself has.
        (DropIns::Imported, Some(main)) if machine.is_here => containerd::imported(main)?,
        (DropIns::Unsupported | DropIns::Imported, _) => Vec::new(),
        (DropIns::Directory(ending), _) => in_directory(&format!("{}.d", facts.file), ending),
    });
    let mut files = Vec::new();
    for path in paths {
        files.extend(one(machine, engine, &path.display().to_string())?);
    }
    Ok(files)
}
