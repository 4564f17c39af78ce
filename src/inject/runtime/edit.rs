//! A JSON file of an engine that is edited: `config.json`, or the process of an `exec`.
//!
//! The directory is opened once, so that a link in its path cannot lead to another one later. The file is read through
//! links, as runc and crun read it, and only if it is a regular file. It is replaced by a rename: the low-level runtime
//! finds either the old file or the new one. If the file is a link, the link is replaced, and its target stays as it
//! is.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::fstat;

use tranche_core::error::{Context, Error, Result};
use tranche_core::oci::CONFIG_LIMIT;
use tranche_core::root::HostDirectory;

/// A file that may be edited.
#[derive(Debug)]
pub(super) struct EditedFile {
    directory: HostDirectory,
    name: OsString,
    path: PathBuf,
}

impl EditedFile {
    /// The configuration of a container. `config` is the file that crun's `--config` names.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be opened.
    pub(super) fn config(bundle: Option<&Path>, config: Option<&Path>) -> Result<Self> {
        match config {
            // crun takes this word as no name at all.
            Some(config) if config != Path::new("config.json") => Self::at(config),
            _ => {
                let bundle = bundle.unwrap_or(Path::new("."));
                let directory = HostDirectory::open(bundle).about(bundle.display(), "cannot open the bundle")?;
                let name = OsString::from("config.json");
                let path = bundle.join(&name);
                Ok(EditedFile { directory, name, path })
            }
        }
    }

    /// Whether `path` leads to this file, as far as both can be found.
    pub(super) fn is(&self, path: &Path) -> bool {
        let real = |path: &Path| std::fs::canonicalize(path).ok();
        real(path).is_some_and(|path| real(&self.path) == Some(path))
    }

    /// The file at `path`.
    ///
    /// # Errors
    /// Returns an error if its directory cannot be opened.
    pub(super) fn at(path: &Path) -> Result<Self> {
        let name = path
            .file_name()
            .ok_or_else(|| Error::usage(path.display(), "is not the name of a file"))?;
        let parent = path
            .parent()
            .filter(|parent| *parent != Path::new(""))
            .unwrap_or(Path::new("."));
        let directory = HostDirectory::open(parent).about(path.display(), "cannot open its directory")?;
        Ok(EditedFile {
            directory,
            name: name.to_owned(),
            path: path.to_owned(),
        })
    }

    /// Reads the file.
    ///
    /// # Errors
    /// Returns an error if it cannot be read, is not a regular file, or is larger than [`CONFIG_LIMIT`].
    pub(super) fn read(&self) -> Result<Vec<u8>> {
        self.edit(|_| Ok(None))
    }

    /// Reads the file and replaces it with what `change` returns; `None` leaves it as it is. Returns what was read.
    ///
    /// # Errors
    /// Returns the errors of `change`, and an error if the file cannot be read or written. Then it is unchanged.
    pub(super) fn edit(&self, change: impl FnOnce(&[u8]) -> Result<Option<Vec<u8>>>) -> Result<Vec<u8>> {
        let name: &OsStr = &self.name;
        let shown = self.path.display();
        let read = self.directory.read_followed(name, CONFIG_LIMIT);
        let (bytes, file) = read.about(&shown, "cannot be read")?;
        let then = fstat(&file).about(&shown, "cannot be read")?;
        if let Some(new) = change(&bytes)? {
            without_signal().about(&shown, "cannot be written")?;
            // A start may wait for a share, while the engine gives it up and puts another configuration here.
            if !self.directory.leads_to(name, &then).about(&shown, "cannot be read")? {
                let what = "was replaced by another file while the container was prepared";
                return Err(Error::failed(shown, what).hint("start the container again"));
            }
            let written = self.directory.replace_like(name, &new, &file);
            written.about(&shown, "cannot be written")?;
        }
        Ok(bytes)
    }
}

/// Keeps the engine's limit on the size of files from ending this process by a signal: a write beyond the limit is an
/// error then. [`tranche_core::sys::inherited`] restores the blocked signals for the low-level runtime.
fn without_signal() -> nix::Result<()> {
    let mut size = SigSet::empty();
    size.add(Signal::SIGXFSZ);
    size.thread_block()
}
