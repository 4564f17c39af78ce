//! The configuration files of engines.

use super::machine::Machine;
use crate::doctor::FoundError;
use crate::engine_config::check::files_in;
use crate::engine_config::containerd;
use crate::engine_config::document::{ConfigFile, Syntax};
use crate::engine_config::view::EngineView;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Result};
use tranche_plan::engines::{DropIns, Engine, FoundEngine};

/// What the files of each engine say. Of the machine that this program runs on, only those of engines that are
/// installed count. An engine without a file is left out.
pub(super) fn read(machine: &Machine, installed: &[FoundEngine]) -> Vec<(Engine, Result<EngineView, FoundError>)> {
    let is_installed = |engine: &Engine| !machine.is_here || installed.iter().any(|one| one.engine == *engine);
    let engines = Engine::ALL.iter().copied().filter(is_installed);
    let views = engines.filter_map(|engine| Some((engine, view(machine, engine).transpose()?)));
    views
        .map(|(engine, view)| (engine, view.map_err(|error| FoundError::of(&error).without_hint())))
        .collect()
}

fn view(machine: &Machine, engine: Engine) -> Result<Option<EngineView>> {
    let main = engine.facts().file;
    let Some(first) = one(machine, engine, main)? else {
        // Its directory may have files all the same.
        return match more(machine, engine, None)? {
            files if files.is_empty() => Ok(None),
            files => {
                let empty = ConfigFile::read(main, Syntax::of(engine), "")?;
                EngineView::of(engine, &ConfigFile::together(&empty, files.iter())).map(Some)
            }
        };
    };
    let files = more(machine, engine, Some(&first))?;
    EngineView::of(engine, &ConfigFile::together(&first, files.iter())).map(Some)
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
