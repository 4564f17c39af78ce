//! The changes that add the runtime, of each engine.

use super::containerd::{self, Version};
use super::document::ConfigFile;
use super::edit::Edit;
use super::{Settings, crio, docker, podman};
use std::path::Path;
use tranche_core::error::{Error, Result};
use tranche_plan::engines::Engine;

/// The configuration of an engine, read.
#[derive(Debug)]
pub struct ReadConfiguration<'a> {
    /// The main file.
    pub main: &'a ConfigFile,
    /// The drop-in that is to be changed; `None` if the main file is.
    pub drop_in: Option<(&'a Path, &'a ConfigFile)>,
    /// What the engine reads altogether.
    pub context: &'a ConfigFile,
    /// The files that it reads before the drop-in.
    pub before: &'a [ConfigFile],
    /// The files that it reads after the drop-in.
    pub after: &'a [ConfigFile],
    /// The version of a new file of containerd.
    pub new: Version,
}

impl ReadConfiguration<'_> {
    /// The changes of the main file, and of the drop-in.
    ///
    /// # Errors
    /// Returns an error if a key has the wrong type, or if a file that is read later replaces the change.
    pub fn edits(&self, engine: Engine, settings: &Settings) -> Result<(Vec<Edit>, Option<Vec<Edit>>)> {
        let Self {
            main, context, before, ..
        } = self;
        Ok(match (engine, self.drop_in) {
            (Engine::Docker, _) => (docker::edits(main, settings)?, None),
            (Engine::Containerd, None) => (containerd::edits(main, context, settings, self.new)?, None),
            (Engine::Containerd, Some((path, file))) => {
                let made = containerd::drop_in(main, context, file, path, settings, self.new)?;
                (made.main, Some(made.drop_in))
            }
            (Engine::Crio, None) => (crio::edits(main, context, settings)?, None),
            (Engine::Crio, Some((_, file))) => (Vec::new(), Some(crio::edits(file, context, settings)?)),
            (Engine::Podman, drop_in) => {
                let edits = podman::edits(drop_in.map_or(main, |(_, file)| file), before, settings)?;
                self.check_later_files(settings)?;
                match drop_in {
                    None => (edits, None),
                    Some(_) => (Vec::new(), Some(edits)),
                }
            }
        })
    }

    /// Refuses a file of podman that is read later and replaces the change.
    fn check_later_files(&self, settings: &Settings) -> Result<()> {
        for file in self.after {
            if let Some(key) = podman::overrides(file, settings)? {
                let what = format!("is read after the changed file and sets {key} again");
                let hint = "remove the key there, or rename the file so that it is read before";
                return Err(Error::failed(&file.name, what).hint(hint));
            }
        }
        Ok(())
    }
}

/// The program of the runtime that containers use now, if `context` names it by a path.
pub fn low_level_program(engine: Engine, context: &ConfigFile, settings: &Settings) -> Option<String> {
    match engine {
        Engine::Containerd => containerd::low_level_program(context, settings),
        Engine::Crio => crio::low_level_program(context, settings),
        Engine::Docker | Engine::Podman => None,
    }
}
