//! The newest CDI version that a refresh writes.

use crate::generate::{OutputFile, Writer};
use serde::Serialize;
use std::path::{Path, PathBuf};
use tranche_core::error::Result;
use tranche_core::types::{CdiKind, CdiVersion};
use tranche_plan::cdi::encode::Format;
use tranche_plan::cdi::header::SpecOrigin;
use tranche_plan::edits::Derived;
use tranche_plan::engines::{FoundEngine, oldest};

/// The newest CDI version for the specifications, and why.
#[derive(Debug, Clone, Serialize)]
pub(super) struct VersionLimit {
    /// The engine that reads nothing newer; `None` if the version was given.
    pub(super) engine: Option<String>,
    /// The version.
    pub(super) cdi: CdiVersion,
}

impl VersionLimit {
    /// The version that was given, or the one that the oldest engine in `engines` reads; `None` without either.
    ///
    /// An engine that reads less than 0.5.0 does not count: for it, names like `0` would have to be left out for all
    /// others.
    pub(super) fn of(given: Option<CdiVersion>, engines: &[FoundEngine]) -> Option<Self> {
        if let Some(cdi) = given {
            return Some(Self { engine: None, cdi });
        }
        let (engine, reads) = oldest(engines)?;
        Some(Self {
            engine: Some(engine.shown()),
            cdi: reads.max(CdiVersion::V0_5),
        })
    }
}

/// Makes specifications within a limit.
pub(super) struct LimitedWriter<'a> {
    pub(super) limit: Option<&'a VersionLimit>,
    pub(super) origin: &'a SpecOrigin,
    pub(super) first: &'a CdiKind,
}

impl LimitedWriter<'_> {
    /// The file for `derived`. If the engine that sets the limit cannot read such a kind at all, the file is one for
    /// the others: a new engine must not lose its shares because an old one is installed, too.
    ///
    /// # Errors
    /// Returns an error if the CDI version that was given cannot have the kind.
    pub(super) fn file(&self, output: &Path, derived: &Derived) -> Result<OutputFile> {
        match (self.make(output, derived, self.limit), self.limit) {
            (Err(_), Some(VersionLimit { engine: Some(_), .. })) => self.make(output, derived, None),
            (made, _) => made,
        }
    }

    fn make(&self, output: &Path, derived: &Derived, limit: Option<&VersionLimit>) -> Result<OutputFile> {
        let writer = Writer {
            format: None,
            cdi_version: limit.map(|limit| limit.cdi),
            spec_dirs: Vec::new(),
            origin: self.origin.clone(),
            first: self.first.clone(),
            refresh: true,
        };
        let is_first = derived.kind == *self.first;
        // Of a refresh, nothing is noted.
        writer.file(output, Format::Yaml, derived, is_first, &mut Vec::new())
    }
}

/// What the limit means for the files, as clauses for people: each file with its CDI version, and whether something was
/// left out of it.
pub(super) fn consequences(limit: Option<&VersionLimit>, files: &[(PathBuf, CdiVersion, bool)]) -> Vec<String> {
    let Some(VersionLimit {
        engine: Some(engine),
        cdi,
    }) = limit
    else {
        return Vec::new();
    };
    let clause = |(file, version, left_out): &(PathBuf, CdiVersion, bool)| {
        let file = file.display();
        if version > cdi {
            Some(format!("{engine} does not read {file}, which needs CDI {version}"))
        } else if *left_out {
            Some(format!(
                "{file} lacks what needs more than CDI {cdi}, because {engine} does not read that"
            ))
        } else {
            None
        }
    };
    files.iter().filter_map(clause).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_plan::engines::Engine;

    #[test]
    fn what_was_given_counts_and_then_the_oldest_engine() {
        let podman = |version: &str| FoundEngine {
            engine: Engine::Podman,
            version: Some(version.parse().unwrap()),
        };
        let of = |given, engines: &[FoundEngine]| VersionLimit::of(given, engines).map(|limit| limit.cdi);
        assert_eq!(of(Some(CdiVersion::V0_3), &[podman("4.3.1")]), Some(CdiVersion::V0_3));
        assert_eq!(of(None, &[podman("5.4"), podman("4.3.1")]), Some(CdiVersion::V0_5));
        // It would lose the names of all others.
        assert_eq!(of(None, &[podman("4.1.1")]), Some(CdiVersion::V0_5));
        assert_eq!(of(None, &[podman("3.4")]), None);
        assert_eq!(of(None, &[]), None);
    }
}
