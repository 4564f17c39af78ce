//! `engine-files.json` in `/var/lib/tranche`: the changed files that engines do not read by default, such as the one of
//! k3s. A removal of tranche finds the others where they always are.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Result};
use tranche_core::ledger::kept_dir;
use tranche_plan::engines::Engine;
use tranche_state::state_file::{self, FileForm};

/// The version of the file's form.
const VERSION: u32 = 1;

const FORM: FileForm = FileForm {
    version: VERSION,
    invalid: "is not valid",
    hint: "remove it, and run tranche runtime unconfigure for each file of an engine in an unusual place",
};

/// The files, in the order in which they were changed first.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct FilesElsewhere {
    version: u32,
    files: Vec<FileElsewhere>,
}

/// A changed file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileElsewhere {
    engine: String,
    path: PathBuf,
}

impl FileElsewhere {
    fn of(engine: Engine, path: &Path) -> Self {
        let (engine, path) = (engine.to_string(), path.to_owned());
        Self { engine, path }
    }
}

impl FilesElsewhere {
    /// Reads the list that is kept beside the ledger in `state_dir`.
    ///
    /// # Errors
    /// Returns an error if it exists and cannot be read.
    pub fn read(state_dir: &Path) -> Result<Self> {
        let list = FORM.read(&path(state_dir), |list: &Self| list.version)?;
        Ok(list.unwrap_or_default())
    }

    /// The files of `engine`.
    pub fn of(&self, engine: Engine) -> impl DoubleEndedIterator<Item = &Path> {
        let files = self.files.iter().filter(move |file| file.engine == engine.as_str());
        files.map(|file| &*file.path)
    }

    /// Adds a file. Returns whether it was not in the list.
    pub fn add(&mut self, engine: Engine, path: &Path) -> bool {
        let file = FileElsewhere::of(engine, path);
        let is_new = !self.files.contains(&file);
        if is_new {
            self.files.push(file);
        }
        is_new
    }

    /// Takes a file out of the list. Returns whether it was in it.
    pub fn remove(&mut self, engine: Engine, path: &Path) -> bool {
        let file = FileElsewhere::of(engine, path);
        let before = self.files.len();
        self.files.retain(|listed| *listed != file);
        self.files.len() < before
    }

    /// Writes the list, or removes the file of an empty one.
    ///
    /// # Errors
    /// Returns an error if it cannot be written or removed.
    pub fn write(&mut self, state_dir: &Path) -> Result<()> {
        self.version = VERSION;
        let path = path(state_dir);
        if self.files.is_empty() {
            return state_file::remove(&path);
        }
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).about(directory.display(), "cannot be made")?;
        }
        FORM.write(&path, self)
    }
}

fn path(state_dir: &Path) -> PathBuf {
    kept_dir(state_dir).join("engine-files.json")
}
