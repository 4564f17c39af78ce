//! The files of an engine: which are read, and which are changed.

use super::arguments::{ConfigureArgs, EngineFileArgs};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use tranche_core::error::Error;
use tranche_inspect::engine_config::Settings;
use tranche_inspect::engine_config::changes::{self, ReadConfiguration};
use tranche_inspect::engine_config::check::{containerd_is_2, files_in, present};
use tranche_inspect::engine_config::containerd::{self, Version};
use tranche_inspect::engine_config::document::{ConfigFile, Syntax};
use tranche_inspect::engine_config::install::{FileChange, HEADER, Target};
use tranche_plan::engines::{DropIns, Engine};

/// The files that may be changed.
pub(super) struct Files {
    engine: Engine,
    pub(super) main: PathBuf,
    /// The drop-in, unless the main file itself is to be changed.
    pub(super) drop_in: Option<PathBuf>,
    /// Whether the drop-in is the default one. containerd's is only used where its version can merge it.
    is_default: bool,
}

/// The files, read.
pub(super) struct ReadFiles {
    main: Target,
    drop_in: Option<Target>,
    /// What the engine reads altogether.
    context: ConfigFile,
    /// For podman: the files that it reads before the drop-in, and after it.
    before: Vec<ConfigFile>,
    after: Vec<ConfigFile>,
    is_default: bool,
    new: Version,
}

/// The changes, and the text of both files with them.
pub(super) struct Edited {
    pub(super) changes: Vec<FileChange>,
    pub(super) main: String,
    pub(super) drop_in: Option<String>,
}

impl Files {
    /// The files that the options name.
    ///
    /// # Errors
    /// Returns a usage error for a drop-in that is not an absolute path, or for docker, which has none.
    pub(super) fn new(args: &EngineFileArgs, is_nvidia: bool) -> Result<Self> {
        let engine = args.runtime;
        let main = args.config.as_deref().unwrap_or(Path::new(engine.facts().file));
        let main = std::path::absolute(main)?;
        let drop_in = match &args.drop_in_config {
            Some(given) if given.is_empty() => None,
            Some(given) if engine.facts().drop_ins == DropIns::Unsupported => {
                let what = format!("{engine} reads no drop-ins");
                bail!(Error::usage(format!("--drop-in-config {}", given.display()), what));
            }
            Some(given) => Some(PathBuf::from(given)),
            None if is_nvidia => engine.facts().nvidia_drop_in.map(PathBuf::from),
            None => default_drop_in(engine, &main),
        };
        if let Some(path) = drop_in.as_ref().filter(|path| !path.is_absolute()) {
            bail!(Error::usage(
                format!("--drop-in-config {}", path.display()),
                "path is not absolute"
            ));
        }
        Ok(Files {
            engine,
            main,
            drop_in,
            is_default: args.drop_in_config.is_none() && !is_nvidia,
        })
    }

    /// The names of the files, for a message.
    pub(super) fn shown(&self) -> String {
        let names = std::iter::once(&self.main).chain(&self.drop_in);
        let names: Vec<String> = names.map(|path| path.display().to_string()).collect();
        names.join(" and ")
    }

    /// Reads the files.
    ///
    /// # Errors
    /// Returns an error if one is not valid.
    pub(super) fn read(&self, args: &ConfigureArgs) -> Result<ReadFiles> {
        let engine = self.engine;
        let syntax = Syntax::of(engine);
        let header = match syntax {
            Syntax::Json => String::new(),
            Syntax::Toml => {
                format!("{HEADER} tranche runtime unconfigure --runtime {engine} removes it.\n")
            }
        };
        let main = Target::read(&self.main, syntax, &header)?;
        let drop_in = self.drop_in.as_deref();
        let others = match (engine.facts().drop_ins, drop_in.and_then(Path::parent)) {
            (DropIns::Directory(ending), Some(directory)) => {
                let is_read = |path: &PathBuf| path.as_os_str().as_encoded_bytes().ends_with(ending.as_bytes());
                files_in(directory).into_iter().filter(is_read).collect()
            }
            (DropIns::Imported, _) => containerd::imported(&main.document)?,
            (DropIns::Directory(_), None) | (DropIns::Unsupported, _) => Vec::new(),
        };
        let (mut before, mut after) = (Vec::new(), Vec::new());
        if let Some(shipped) = engine.facts().shipped {
            before.push(Target::read(Path::new(shipped), syntax, "")?.document);
        }
        if drop_in.is_some() {
            before.push(main.document.clone());
        }
        for path in others.into_iter().filter(|path| Some(&**path) != drop_in) {
            let document = Target::read(&path, Syntax::Toml, "")?.document;
            match Some(&*path) < drop_in {
                true => before.push(document),
                false => after.push(document),
            }
        }
        let context = match args.asks_engine() {
            true => ConfigFile::read(
                format!("configuration of {engine}"),
                Syntax::Toml,
                &present(engine, args.program(), &self.main)?,
            )?,
            false => ConfigFile::together(&main.document, before.iter().chain(&after)),
        };
        let drop_in = drop_in.map(|path| Target::read(path, Syntax::Toml, &header));
        let drop_in = drop_in.transpose()?.map(|file| match engine {
            // It may repeat the credentials of registries.
            Engine::Containerd => file.like(&main),
            _ => file,
        });
        let is_new = engine == Engine::Containerd && main.document.is_empty();
        let new = Version::of_new_file(is_new && containerd_is_2(args.program()) == Some(true));
        Ok(ReadFiles {
            main,
            drop_in,
            context,
            before,
            after,
            is_default: self.is_default,
            new,
        })
    }

    /// What takes back the changes of tranche.
    ///
    /// # Errors
    /// Returns an error if a file or its backup cannot be read.
    pub(super) fn undone(&self, engine: Engine) -> Result<Vec<FileChange>> {
        let mut changes = Vec::new();
        for path in self.changeable() {
            changes.extend(Target::read(path, Syntax::of(engine), "")?.undo()?);
        }
        Ok(changes)
    }

    /// The files that tranche may have changed. The main file is the first: containerd refuses one that imports a
    /// missing file by its name.
    pub(super) fn changeable(&self) -> impl Iterator<Item = &Path> {
        let nvidia = self.engine.facts().nvidia_drop_in.filter(|_| self.is_default);
        let drop_ins = self.drop_in.as_deref().into_iter().chain(nvidia.map(Path::new));
        std::iter::once(&*self.main).chain(drop_ins)
    }
}

/// A file in the directory of drop-ins that belongs to the main file.
fn default_drop_in(engine: Engine, main: &Path) -> Option<PathBuf> {
    match engine.facts().drop_ins {
        DropIns::Unsupported => None,
        DropIns::Imported => Some(main.with_file_name("conf.d").join("99-tranche.toml")),
        DropIns::Directory(_) => {
            let mut directory = main.as_os_str().to_owned();
            directory.push(".d");
            Some(PathBuf::from(directory).join("99-tranche.conf"))
        }
    }
}

impl ReadFiles {
    /// The program of the runtime that containers use now, if the configuration names it by a path.
    pub(super) fn low_level_program(&self, engine: Engine, settings: &Settings) -> Option<String> {
        changes::low_level_program(engine, &self.context, settings)
    }

    /// The changes that add the runtime.
    ///
    /// # Errors
    /// Returns an error if the files cannot be changed, or if a file that is read later replaces the change.
    pub(super) fn edited(self, engine: Engine, settings: &Settings) -> Result<Edited> {
        let ReadFiles {
            main,
            mut drop_in,
            context,
            before,
            after,
            is_default,
            new,
        } = self;
        if engine == Engine::Containerd && is_default && containerd::replaces_sections(&main.document, new)? {
            drop_in = None;
        }
        let read = ReadConfiguration {
            main: &main.document,
            drop_in: drop_in.as_ref().map(|file| (&*file.path, &file.document)),
            context: &context,
            before: &before,
            after: &after,
            new,
        };
        let (main_edits, drop_in_edits) = read.edits(engine, settings)?;
        let mut edited = Edited {
            changes: Vec::new(),
            main: main.before.clone().unwrap_or_default(),
            drop_in: drop_in.as_ref().map(|file| file.before.clone().unwrap_or_default()),
        };
        // The drop-in first: a main file that imports it must find it.
        if let (Some(file), Some(edits)) = (drop_in, drop_in_edits)
            && let Some(change) = file.with(edits)?
        {
            edited.drop_in.clone_from(&change.after);
            edited.changes.push(change);
        }
        if let Some(change) = main.with(main_edits)? {
            edited.main = change.after.clone().unwrap_or_default();
            edited.changes.push(change);
        }
        Ok(edited)
    }
}
