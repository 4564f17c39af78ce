//! Puts a changed configuration in its place, and takes it back.
//!
//! A file is replaced as a whole or not at all. Before the first change, its bytes are copied to `FILE.before-tranche`, and
//! `FILE.tranche.json` lists what was changed.

use super::document::{Document, Syntax};
use super::edit::Edit;
use super::record::{Beside, Record};
use crate::cdi::write::{remove_abandoned, temporary};
use crate::digest::Digest;
use crate::error::{Context, Error, Result};
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// The most bytes of a configuration file. Real ones have some thousands.
const MOST_BYTES: u64 = 4 << 20;

/// A file that is to be changed.
#[derive(Debug)]
pub struct Target {
    /// The path that was given.
    pub path: PathBuf,
    /// The file itself: behind symbolic links, which stay as they are.
    file: PathBuf,
    /// Its text, if it exists.
    pub before: Option<String>,
    /// What it says.
    pub document: Document,
    syntax: Syntax,
    beside: Beside,
    /// What tranche changed in it before.
    record: Option<Record>,
}

/// What becomes of a file.
#[derive(Debug)]
pub struct Change {
    target: Target,
    /// The new text; `None` if the file is removed.
    pub after: Option<String>,
    work: Work,
}

#[derive(Debug)]
enum Work {
    Configure(Vec<Edit>),
    /// Restores it, or removes parts; `kept` are the settings that stay because they were changed since.
    Undo {
        kept: Vec<String>,
        exact: bool,
    },
}

impl Target {
    /// Reads `path`. A file that does not exist has the text `header`, which a new file begins with.
    ///
    /// # Errors
    /// Returns an error if the path is not a regular file, if it cannot be read, or if its text is not valid.
    pub fn read(path: &Path, syntax: Syntax, header: &str) -> Result<Self> {
        let shown = path.display();
        let (file, before) = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => (path.to_owned(), None),
            Err(error) => return Err(Error::failed(&shown, "cannot be examined").from_source(error)),
            Ok(_) => {
                let file = fs::canonicalize(path).about(&shown, "the file behind the link cannot be found")?;
                let data = fs::metadata(&file).about(&shown, "cannot be examined")?;
                if !data.is_file() {
                    return Err(Error::failed(&shown, "is not a regular file"));
                }
                if data.len() > MOST_BYTES {
                    return Err(Error::failed(
                        &shown,
                        format!("has more than {MOST_BYTES} bytes, which is not a configuration"),
                    ));
                }
                let bytes = fs::read(&file).about(&shown, "cannot be read")?;
                let text = String::from_utf8(bytes).map_err(|error| {
                    let at = error.utf8_error().valid_up_to();
                    Error::failed(&shown, format!("is not valid UTF-8 (byte {at})")).hint("nothing was changed")
                })?;
                (file, Some(text))
            }
        };
        let document = Document::read(shown.to_string(), syntax, before.as_deref().unwrap_or(header))?;
        let beside = Beside::of(&file);
        let record = beside.record()?;
        Ok(Target {
            path: path.to_owned(),
            file,
            before,
            document,
            syntax,
            beside,
            record,
        })
    }

    /// The change that makes `edits`; `None` if the file has them already.
    ///
    /// # Errors
    /// Returns an error if they cannot be made.
    pub fn with(self, edits: Vec<Edit>) -> Result<Option<Change>> {
        let after = self.document.with(&edits)?;
        if self.before.as_deref() == Some(&*after.text) || (self.before.is_none() && edits.is_empty()) {
            return Ok(None);
        }
        Ok(Some(Change {
            target: self,
            after: Some(after.text),
            work: Work::Configure(edits),
        }))
    }

    /// The change that takes back what tranche changed; `None` if it changed nothing.
    ///
    /// # Errors
    /// Returns an error if the record or the backup cannot be read.
    pub fn undo(self) -> Result<Option<Change>> {
        let Some(record) = &self.record else { return Ok(None) };
        let original = self.original(record)?;
        let Some(before) = &self.before else {
            return Ok(Some(self.undone(None, Vec::new(), true)));
        };
        let is_exact = record.exact && digest(before)? == record.written;
        if is_exact || original.as_ref() == Some(before) {
            return Ok(Some(self.undone(original, Vec::new(), true)));
        }
        let text = original.unwrap_or_default();
        let original = Document::read(self.beside.backup.display().to_string(), self.syntax, &text)?;
        let (rest, kept) = self.document.without(&record.edits, &original)?;
        // Only the comment that tranche wrote remains of a file that it created.
        let is_left = !record.created || !rest.is_empty();
        let after = is_left.then_some(rest.text);
        Ok(Some(self.undone(after, kept, false)))
    }

    fn undone(self, after: Option<String>, kept: Vec<String>, exact: bool) -> Change {
        Change {
            target: self,
            after,
            work: Work::Undo { kept, exact },
        }
    }

    fn original(&self, record: &Record) -> Result<Option<String>> {
        if record.created {
            return Ok(None);
        }
        let bytes = self.beside.original()?;
        String::from_utf8(bytes)
            .map(Some)
            .about(self.beside.backup.display(), "is not valid UTF-8")
    }
}

impl Change {
    /// The path that was given.
    pub fn path(&self) -> &Path {
        &self.target.path
    }

    /// The present text.
    pub fn before(&self) -> Option<&str> {
        self.target.before.as_deref()
    }

    /// For a change that takes tranche's back: the settings that stay because they were changed since.
    pub fn kept(&self) -> &[String] {
        match &self.work {
            Work::Undo { kept, .. } => kept,
            Work::Configure(_) => &[],
        }
    }

    /// Whether the original bytes are restored, or the file is created by tranche and removed.
    pub fn is_exact(&self) -> bool {
        !matches!(&self.work, Work::Undo { exact: false, .. })
    }

    /// Writes the file. If that fails, the old file is unchanged.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written, for example if the disk is full.
    pub fn install(&self) -> Result<()> {
        let Target { file, beside, .. } = &self.target;
        let directory = file.parent().unwrap_or(Path::new("/"));
        if let Work::Configure(edits) = &self.work {
            make_directory(directory)?;
            remove_abandoned(&beside.directory)?;
            self.remember(edits)?;
        }
        let shown = self.target.path.display();
        match &self.after {
            Some(text) => replace(
                file,
                text.as_bytes(),
                &beside.directory,
                fs::metadata(file).ok().as_ref(),
            )?,
            None if self.target.before.is_some() => fs::remove_file(file).about(&shown, "cannot be removed")?,
            None => {}
        }
        match self.work {
            Work::Configure(_) => Ok(()),
            Work::Undo { .. } => beside.remove(),
        }
    }

    /// Takes an installed change back: the file has its former text, and what was kept beside it is removed if there was nothing
    /// before. For a set of files of which one cannot be changed.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn revert(&self) -> Result<()> {
        let Target { file, beside, .. } = &self.target;
        match &self.target.before {
            Some(text) => replace(
                file,
                text.as_bytes(),
                &beside.directory,
                fs::metadata(file).ok().as_ref(),
            )?,
            None => fs::remove_file(file).about(file.display(), "cannot be removed")?,
        }
        match &self.target.record {
            Some(record) => replace(
                &beside.record,
                beside.text_of(record)?.as_bytes(),
                &beside.directory,
                None,
            ),
            None => beside.remove(),
        }
    }

    /// Writes the backup, if this is the first change, and the record.
    fn remember(&self, edits: &[Edit]) -> Result<()> {
        let Target {
            file, beside, record, ..
        } = &self.target;
        let before = self.target.before.as_deref();
        let mut record = match record.clone().filter(|_| before.is_some()) {
            Some(mut record) => {
                record.exact &= digest(before.unwrap_or_default())? == record.written;
                record
            }
            None => {
                if let Some(text) = before {
                    let data = fs::metadata(file).ok();
                    replace(&beside.backup, text.as_bytes(), &beside.directory, data.as_ref())?;
                }
                Record::new(before.is_none())
            }
        };
        record.add(edits);
        record.written = digest(self.after.as_deref().unwrap_or_default())?;
        replace(
            &beside.record,
            beside.text_of(&record)?.as_bytes(),
            &beside.directory,
            None,
        )
    }
}

fn digest(text: &str) -> Result<String> {
    Ok(Digest::of(&text)?.to_string())
}

/// Replaces `path` by a file with these bytes, through a temporary file in `directory`. It has the mode and the owner of the
/// file `like`, or mode 0644.
fn replace(path: &Path, bytes: &[u8], directory: &Path, like: Option<&Metadata>) -> Result<()> {
    let shown = path.display();
    let parent = path.parent().unwrap_or(Path::new("/"));
    // A directory of drop-ins may be a file system of its own, and a file is renamed within one.
    let device = |path: &Path| fs::metadata(path).map(|data| data.dev()).ok();
    let is_same = device(directory) == device(parent);
    let mut file = temporary(if is_same { directory } else { parent }).about(&shown, "cannot be written")?;
    file.write_all(bytes).about(&shown, "cannot be written")?;
    if let Some(like) = like {
        let is_ours = file.as_file().metadata().about(&shown, "cannot be written")?;
        if (is_ours.uid(), is_ours.gid()) != (like.uid(), like.gid()) {
            fchown(file.as_file(), Some(like.uid()), Some(like.gid())).about(&shown, "cannot keep its owner")?;
        }
    }
    let mode = like.map_or(0o644, |like| like.permissions().mode() & 0o7777);
    file.as_file()
        .set_permissions(Permissions::from_mode(mode))
        .about(&shown, "cannot keep its mode")?;
    file.as_file()
        .sync_all()
        .about(&shown, "cannot be brought to the disk")?;
    file.persist(path)
        .map_err(|error| error.error)
        .about(&shown, "cannot be replaced")?;
    File::open(parent)
        .and_then(|directory| directory.sync_all())
        .about(parent.display(), "cannot be brought to the disk")
}

fn make_directory(directory: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory)
        .about(directory.display(), "cannot make the directory")
}
