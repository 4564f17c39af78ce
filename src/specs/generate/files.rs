//! The specifications of one run: one for each kind of devices, printed or written beside each other.

use super::outcome::Outcome;
use super::{hints, leftover};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use tranche_core::error::{Error, Result};
use tranche_core::types::{CdiKind, CdiVersion};
use tranche_plan::cdi::encode::{Format, encode, file_of};
use tranche_plan::cdi::header::{self, SpecOrigin};
use tranche_plan::cdi::{LeftOut, Spec, build};
use tranche_plan::edits::Derived;
use tranche_state::replace;

/// Writes specifications.
pub(crate) struct Writer {
    /// The format; `None` for the one that the name of the file says, else YAML.
    pub(crate) format: Option<Format>,
    /// The newest CDI version that the engine supports.
    pub(crate) cdi_version: Option<CdiVersion>,
    /// The directories that engines read.
    pub(crate) spec_dirs: Vec<PathBuf>,
    pub(crate) origin: SpecOrigin,
    /// The main kind, from which the names of the files of other kinds are made.
    pub(crate) first: CdiKind,
    /// Whether this is a refresh: the header has a mark of it, and nothing is noted for a person.
    pub(crate) refresh: bool,
}

/// A specification, and the file for it.
pub(crate) struct OutputFile {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    pub(crate) spec: Spec,
    /// What the given CDI version does not have.
    pub(crate) left_out: Vec<LeftOut>,
}

impl Writer {
    /// The text of each specification, for standard output.
    ///
    /// # Errors
    /// Returns an error if one of them needs a file of its own.
    pub(super) fn documents(&self, by_kind: &[Derived], notes: &mut Vec<String>) -> Result<Vec<String>> {
        if let Some(renamed) = by_kind.iter().skip(1).find(|d| self.coherence(&d.kind).is_none()) {
            let what = format!("shares of {} need a specification of their own", renamed.kind);
            return Err(Error::usage("stdout", what)
                .hint("give --output FILE; each further kind is then written to a file beside it"));
        }
        let format = self.format.unwrap_or(Format::Yaml);
        let mut document = |derived| {
            let (spec, comments, _) = self.specification(derived, notes)?;
            encode(&spec, format, &comments)
        };
        by_kind.iter().map(&mut document).collect()
    }

    /// Writes the specifications to `output` and to files beside it, and removes files of kinds that no longer exist.
    /// `before` is called once nothing but the writing itself can fail, and returns a line for people.
    ///
    /// # Errors
    /// Returns an error if a specification cannot be made or written, or must not replace an older one.
    pub(super) fn write(
        &self,
        output: &Path,
        by_kind: &[Derived],
        outcome: &Outcome,
        before: impl FnOnce() -> Result<Option<String>>,
        notes: &mut Vec<String>,
    ) -> Result<()> {
        let format = self.format.or_else(|| Format::of_path(output)).unwrap_or(Format::Yaml);
        let (output, real) = file_of(output, format);
        if real != format {
            let (name, wanted) = (output.display(), format.extension());
            notes.push(format!(
                "{name}: written as {}, as its name says, and not as {wanted}",
                real.extension()
            ));
        }
        // All are made before the first is written: after a failure the old files are complete.
        let mut files = Vec::new();
        for (number, derived) in by_kind.iter().enumerate() {
            files.push(self.file(&output, real, derived, number == 0, notes)?);
        }
        outcome.may_write(files.iter().map(|file| file.path.as_path()))?;
        notes.extend(before()?);
        for file in &files {
            file.write(notes)?;
        }
        let conflicts = |file: &OutputFile| hints::conflicts(&file.path, &file.spec, &self.spec_dirs);
        for conflict in files.iter().flat_map(conflicts) {
            tracing::warn!("{conflict}");
        }
        // After an incomplete examination, a kind may be missing only because its devices did not answer.
        if !outcome.is_complete() {
            return Ok(());
        }
        let written: Vec<&Path> = files.iter().map(|file| file.path.as_path()).collect();
        let name = |spec: &Spec| Some(self.beside(&output, &spec.kind.parse().ok()?));
        for file in leftover::remove(&output, &written, name)? {
            notes.push(format!(
                "{}: removed, because an earlier run wrote it and the policy has no such shares any more",
                file.display()
            ));
        }
        Ok(())
    }

    /// The file for `derived`: `output` if it is the first, else a file beside it.
    ///
    /// # Errors
    /// Returns an error if the engine's version of CDI cannot have the kind.
    pub(crate) fn file(
        &self,
        output: &Path,
        format: Format,
        derived: &Derived,
        is_first: bool,
        notes: &mut Vec<String>,
    ) -> Result<OutputFile> {
        let (spec, mut comments, left_out) =
            self.specification(derived, notes)
                .map_err(|error| match self.coherence(&derived.kind) {
                    _ if is_first => error,
                    Some(_) => error.hint("leave enable-coherent-annotations out, or give --cdi-version 0.6"),
                    None => error.hint("leave rename and renameByDefault out of the policy, or give --cdi-version 0.6"),
                })?;
        let path = if is_first {
            output.to_owned()
        } else {
            comments.insert(1, leftover::mark(output));
            self.beside(output, &derived.kind)
        };
        let text = encode(&spec, format, &comments)?;
        Ok(OutputFile {
            path,
            text,
            spec,
            left_out,
        })
    }

    /// The specification of one kind, the comments of its header, and what was left out.
    fn specification(&self, derived: &Derived, notes: &mut Vec<String>) -> Result<(Spec, Vec<String>, Vec<LeftOut>)> {
        let (spec, left_out) = build(derived, self.cdi_version)?;
        if !self.refresh {
            notes.extend(LeftOut::lines(&left_out, &spec.kind));
            if self.cdi_version.is_none() {
                notes.extend(hints::for_old_engines(derived, &spec));
            }
        }
        let mut comments = vec![header::made_by()];
        comments.extend(self.refresh.then(|| header::REFRESHED.to_owned()));
        comments.extend(self.origin.comments());
        comments.extend(LeftOut::comments(&left_out));
        Ok((spec, comments, left_out))
    }

    /// The file for another kind, beside that of the first: `nvidia.yaml` and `nvidia-gpu.shared.yaml`, or, as NVIDIA's
    /// tool names it, `nvidia.coherent.yaml`.
    fn beside(&self, output: &Path, kind: &CdiKind) -> PathBuf {
        let text = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
        let (stem, extension) = (text(output.file_stem()), text(output.extension()));
        output.with_file_name(match self.coherence(kind) {
            Some(word) => format!("{stem}.{word}.{extension}"),
            None => format!("{stem}-{}.{extension}", kind.class()),
        })
    }

    /// The word about the memory of the devices that `kind` has in addition to the first kind.
    fn coherence<'k>(&self, kind: &'k CdiKind) -> Option<&'k str> {
        let word = kind.class().strip_prefix(self.first.class())?.strip_prefix('.')?;
        matches!(word, "coherent" | "noncoherent").then_some(word)
    }
}

impl OutputFile {
    fn write(&self, notes: &mut Vec<String>) -> Result<()> {
        let missing = hints::missing_directory(&self.path);
        replace::write(&self.path, &self.text)?;
        if let Some(directory) = missing {
            notes.push(format!("{}: created, because it did not exist", directory.display()));
        }
        let (name, devices) = (self.path.display(), self.spec.devices.len());
        let (kind, version) = (&self.spec.kind, &self.spec.version);
        notes.push(format!("{name}: {devices} devices of {kind}, CDI {version}"));
        Ok(())
    }
}
