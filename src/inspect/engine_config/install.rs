//! Puts a changed configuration in its place, and takes it back.
//!
//! A file is replaced as a whole or not at all. Before the first change, its bytes are copied to `FILE.before-tranche`,
//! and `FILE.tranche.json` lists what was changed.

use super::document::{ConfigFile, Syntax};
use super::edit::Edit;
use super::record::{Beside, Record};
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tranche_core::error::{Context, Error, Result};
use tranche_specs::digests;
use tranche_state::replace::{self, FileOptions, Prepared};

/// The most bytes of a configuration file. Real ones have some thousands.
const MOST_BYTES: u64 = 4 << 20;

/// How the comment begins with which tranche begins a file that it creates.
pub const HEADER: &str = "# Written by tranche;";

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
    pub document: ConfigFile,
    syntax: Syntax,
    beside: Beside,
    /// The file whose mode and owner a new file gets.
    model: Option<PathBuf>,
    /// What tranche changed in it before.
    record: Option<Record>,
}

/// Whether tranche has changed the file `path`, and has not taken that back.
pub fn is_changed(path: &Path) -> bool {
    let file = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    Beside::of(&file).record.symlink_metadata().is_ok()
}

/// What becomes of a file.
#[derive(Debug)]
pub struct FileChange {
    target: Target,
    /// The new text; `None` if the file is removed.
    pub after: Option<String>,
    kind: ChangeKind,
}

#[derive(Debug)]
enum ChangeKind {
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
        let document = ConfigFile::read(shown.to_string(), syntax, before.as_deref().unwrap_or(header))?;
        let beside = Beside::of(&file);
        let record = beside.record()?;
        Ok(Target {
            path: path.to_owned(),
            file,
            before,
            document,
            syntax,
            beside,
            model: None,
            record,
        })
    }

    /// Gives a new file the mode and the owner of `other`, because it repeats a part of it that not everybody may read.
    #[must_use]
    pub fn like(mut self, other: &Target) -> Self {
        self.model = Some(other.file.clone());
        self
    }

    /// Whose mode and owner the file has, or gets.
    fn metadata(&self) -> Option<Metadata> {
        let model = || fs::metadata(self.model.as_ref()?).ok();
        fs::metadata(&self.file).ok().or_else(model)
    }

    /// Checks that nobody changed the file since it was read.
    fn check_unchanged(&self) -> Result<()> {
        let now = match fs::read(&self.file) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(Error::failed(self.path.display(), "cannot be read").from_source(error)),
        };
        match now.as_deref() == self.before.as_deref().map(str::as_bytes) {
            true => Ok(()),
            false => Err(
                Error::failed(self.path.display(), "was changed by another program at the same time")
                    .hint("nothing was changed; run the command again"),
            ),
        }
    }

    /// The change that makes `edits`; `None` if the file has them already.
    ///
    /// # Errors
    /// Returns an error if they cannot be made.
    pub fn with(self, edits: Vec<Edit>) -> Result<Option<FileChange>> {
        let after = self.document.with(&edits)?;
        if self.before.as_deref() == Some(&*after.text) || (self.before.is_none() && edits.is_empty()) {
            return Ok(None);
        }
        Ok(Some(FileChange {
            target: self,
            after: Some(after.text),
            kind: ChangeKind::Configure(edits),
        }))
    }

    /// The change that takes back what tranche changed; `None` if it changed nothing.
    ///
    /// # Errors
    /// Returns an error if the record or the backup cannot be read.
    pub fn undo(self) -> Result<Option<FileChange>> {
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
        let original = ConfigFile::read(self.beside.backup.display().to_string(), self.syntax, &text)?;
        let (rest, kept) = self.document.without(&record.edits, &original)?;
        let after = match record.created {
            // Others have written into a file that is not tranche's any more, so its first line would be wrong.
            true => (!rest.is_empty()).then(|| lines_without(&rest.text, HEADER)),
            false => Some(rest.text),
        };
        Ok(Some(self.undone(after, kept, false)))
    }

    fn undone(self, after: Option<String>, kept: Vec<String>, exact: bool) -> FileChange {
        FileChange {
            target: self,
            after,
            kind: ChangeKind::Undo { kept, exact },
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

impl FileChange {
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
        match &self.kind {
            ChangeKind::Undo { kept, .. } => kept,
            ChangeKind::Configure(_) => &[],
        }
    }

    /// Whether the original bytes are restored, or the file is created by tranche and removed.
    pub fn is_exact(&self) -> bool {
        !matches!(&self.kind, ChangeKind::Undo { exact: false, .. })
    }

    /// Writes the file. If that fails, the old file is unchanged.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written, for example if the disk is full, or if another program changed it
    /// since it was read.
    pub fn install(&self) -> Result<()> {
        let Target { beside, .. } = &self.target;
        self.target.check_unchanged()?;
        match &self.kind {
            ChangeKind::Configure(edits) => {
                let done = self.remember(edits).and_then(|()| self.put(self.after.as_deref()));
                // What is beside the file must not say that it was changed.
                done.map_err(|error| match self.forget() {
                    Ok(()) => error,
                    Err(other) => error.and_hint(other),
                })
            }
            ChangeKind::Undo { .. } => {
                self.put(self.after.as_deref())?;
                beside.remove()?;
                self.target.record.iter().for_each(Record::remove_directories);
                Ok(())
            }
        }
    }

    /// Takes an installed change back, for a set of files of which another one cannot be changed.
    ///
    /// # Errors
    /// Returns an error if a file cannot be written.
    pub fn revert(&self) -> Result<()> {
        self.put(self.target.before.as_deref())?;
        self.forget()
    }

    /// Gives the file this text, or removes it.
    fn put(&self, text: Option<&str>) -> Result<()> {
        let Target { file, beside, .. } = &self.target;
        match text {
            Some(text) => replace(file, text, &beside.directory, self.target.metadata().as_ref()),
            None => replace::remove(file),
        }
    }

    /// Restores the record that was there before this change, or removes it with the backup.
    fn forget(&self) -> Result<()> {
        match &self.target.record {
            Some(record) => self.write_record(record),
            None => self.target.beside.remove(),
        }
    }

    fn write_record(&self, record: &Record) -> Result<()> {
        let Target { beside, .. } = &self.target;
        let text = beside.text_of(record)?;
        let like = self.target.metadata();
        replace(&beside.record, &text, &beside.directory, like.as_ref())
    }

    /// Writes the backup, if this is the first change, and the record.
    fn remember(&self, edits: &[Edit]) -> Result<()> {
        let Target { beside, record, .. } = &self.target;
        let before = self.target.before.as_deref();
        let mut record = match record.clone().filter(|_| before.is_some()) {
            Some(mut record) => {
                record.exact &= digest(before.unwrap_or_default())? == record.written;
                record
            }
            None => {
                if let Some(text) = before {
                    let like = self.target.metadata();
                    replace(&beside.backup, text, &beside.directory, like.as_ref())?;
                }
                let missing = self.target.file.ancestors().skip(1).take_while(|path| !path.exists());
                Record {
                    directories: missing.map(Path::to_owned).collect(),
                    ..Record::new(before.is_none())
                }
            }
        };
        record.add(edits);
        record.written = digest(self.after.as_deref().unwrap_or_default())?;
        self.write_record(&record)
    }
}

fn lines_without(text: &str, beginning: &str) -> String {
    let lines = text.split_inclusive('\n');
    lines.filter(|line| !line.starts_with(beginning)).collect()
}

fn digest(text: &str) -> Result<String> {
    Ok(digests::of(text)?.to_string())
}

/// Replaces `path` by a file with this text, through a temporary file in `directory`. It has the mode and the owner of
/// the file `like`, or mode 0644.
fn replace(path: &Path, text: &str, directory: &Path, like: Option<&Metadata>) -> Result<()> {
    let usual = FileOptions::default();
    let options = FileOptions {
        mode: like.map_or(usual.mode, |like| like.mode() & 0o7777),
        owner: like.map(|like| (like.uid(), like.gid())),
        // CRI-O reads every file in its directory of drop-ins.
        through: Some(directory),
        ..usual
    };
    Prepared::new(path, text, &options)?.put_in_place()
}
