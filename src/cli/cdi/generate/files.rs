//! The specifications of one run: one for each kind of devices, printed or written beside each other.

use super::arguments::FileArgs;
use super::hints;
use super::outcome::Outcome;
use crate::cdi::encode::{Format, encode, file_of};
use crate::cdi::header::{self, SpecOrigin};
use crate::cdi::{LeftOut, Spec, build};
use crate::cli::cdi::leftover;
use crate::cli::out;
use crate::edits::Derived;
use crate::error::Error;
use crate::replace;
use crate::types::CdiKind;
use anyhow::{Result, bail};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Writes specifications.
pub(in crate::cli::cdi) struct Writer<'a> {
    pub(in crate::cli::cdi) args: &'a FileArgs,
    pub(in crate::cli::cdi) origin: SpecOrigin,
    /// The main kind, from which the names of the files of other kinds are made.
    pub(in crate::cli::cdi) first: CdiKind,
    /// Whether this is a refresh: the header has a mark of it, and what no person waits for is not printed.
    pub(in crate::cli::cdi) refresh: bool,
}

/// A specification, and the file for it.
pub(in crate::cli::cdi) struct OutputFile {
    pub(in crate::cli::cdi) path: PathBuf,
    pub(in crate::cli::cdi) text: String,
    pub(in crate::cli::cdi) spec: Spec,
    /// What the given CDI version does not have.
    pub(in crate::cli::cdi) left_out: Vec<LeftOut>,
}

impl Writer<'_> {
    /// Prints the specifications to stdout.
    ///
    /// # Errors
    /// Returns an error if one of them needs a file of its own.
    pub(super) fn print(&self, by_kind: &[Derived]) -> Result<()> {
        if let Some(renamed) = by_kind.iter().skip(1).find(|d| self.coherence(&d.kind).is_none()) {
            let what = format!("shares of {} need a specification of their own", renamed.kind);
            bail!(
                Error::usage("stdout", what)
                    .hint("give --output FILE; each further kind is then written to a file beside it")
            );
        }
        for derived in by_kind {
            let (spec, comments, _) = self.specification(derived)?;
            let format = self.args.format.unwrap_or(Format::Yaml);
            out::document(&encode(&spec, format, &comments)?)?;
        }
        Ok(())
    }

    /// Writes the specifications to `output` and to files beside it, and removes files of kinds that no longer exist.
    /// `before` is called once nothing but the writing itself can fail.
    ///
    /// # Errors
    /// Returns an error if a specification cannot be made or written, or must not replace an older one.
    pub(super) fn write(
        &self,
        output: &Path,
        by_kind: &[Derived],
        outcome: &Outcome,
        before: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let format = self
            .args
            .format
            .or_else(|| Format::of_path(output))
            .unwrap_or(Format::Yaml);
        let (output, real) = file_of(output, format);
        if real != format {
            let (name, wanted) = (output.display(), format.extension());
            out::note(format_args!(
                "{name}: written as {}, as its name says, and not as {wanted}",
                real.extension()
            ));
        }
        // All are made before the first is written: after a failure the old files are complete.
        let mut files = Vec::new();
        for (number, derived) in by_kind.iter().enumerate() {
            files.push(self.file(&output, real, derived, number == 0)?);
        }
        outcome.may_write(files.iter().map(|file| file.path.as_path()))?;
        before()?;
        for file in &files {
            file.write()?;
        }
        for conflict in files.iter().flat_map(|file| hints::conflicts(&file.path, &file.spec)) {
            tracing::warn!("{conflict}");
        }
        // After an incomplete examination, a kind may be missing only because its devices did not answer.
        if !outcome.is_complete() {
            return Ok(());
        }
        let written: Vec<&Path> = files.iter().map(|file| file.path.as_path()).collect();
        let name = |spec: &Spec| Some(self.beside(&output, &spec.kind.parse().ok()?));
        for file in leftover::remove(&output, &written, name)? {
            out::note(format_args!(
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
    pub(in crate::cli::cdi) fn file(
        &self,
        output: &Path,
        format: Format,
        derived: &Derived,
        is_first: bool,
    ) -> Result<OutputFile> {
        let (spec, mut comments, left_out) =
            self.specification(derived)
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
    fn specification(&self, derived: &Derived) -> Result<(Spec, Vec<String>, Vec<LeftOut>), Error> {
        let (spec, left_out) = build(derived, self.args.cdi_version)?;
        if !self.refresh {
            LeftOut::lines(&left_out, &spec.kind).into_iter().for_each(out::note);
            if self.args.cdi_version.is_none() {
                hints::for_old_engines(derived, &spec).iter().for_each(out::note);
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
    fn write(&self) -> Result<()> {
        let missing = hints::missing_directory(&self.path);
        replace::write(&self.path, &self.text)?;
        if let Some(directory) = missing {
            out::note(format_args!(
                "{}: created, because it did not exist",
                directory.display()
            ));
        }
        let (name, devices) = (self.path.display(), self.spec.devices.len());
        let (kind, version) = (&self.spec.kind, &self.spec.version);
        out::note(format_args!("{name}: {devices} devices of {kind}, CDI {version}"));
        Ok(())
    }
}
