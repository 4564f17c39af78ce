//! A problem in a file or directory of specifications, as a person reads it.

use std::path::{Path, PathBuf};
use tranche_core::text::{shown, some};
use tranche_core::types::Place;

/// Something that an engine refuses, or that has another effect than the author of the file intended.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// The file or directory.
    pub path: PathBuf,
    /// Where in the file.
    pub at: Option<Place>,
    /// What is wrong, and what to do about it.
    pub what: String,
    /// The devices that no engine finds because of it; `None` if even their names cannot be read.
    pub lost: Option<Vec<String>>,
    /// What kind of problem it is.
    #[serde(skip)]
    pub kind: ProblemKind,
}

/// What kind of problem it is, for a program that has to know it without reading the text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ProblemKind {
    /// The file or directory cannot be read, or engines refuse its content.
    #[default]
    Invalid,
    /// Engines do not read the file because of its name.
    Name,
    /// Another file of the directory defines the same devices.
    Conflict,
    /// The file refers to something that this host does not have.
    Reference(Reference),
}

/// Something that a specification refers to and that this host does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// Whether it is the program of a hook. Otherwise, it is a file or a device node for the container.
    pub is_hook: bool,
    /// Its path on the host.
    pub path: PathBuf,
}

impl Problem {
    /// A problem of `path` because of which no device is lost.
    pub fn new(path: &Path, at: Option<Place>, what: impl Into<String>) -> Self {
        Problem {
            path: path.to_owned(),
            at,
            what: what.into(),
            lost: Some(Vec::new()),
            kind: ProblemKind::Invalid,
        }
    }

    /// The same problem, of another kind.
    #[must_use]
    pub fn of(self, kind: ProblemKind) -> Self {
        Problem { kind, ..self }
    }

    /// A problem because of which the devices `lost` are lost.
    pub fn losing(path: &Path, at: Option<Place>, what: impl Into<String>, lost: Option<Vec<String>>) -> Self {
        Problem {
            lost,
            ..Problem::new(path, at, what)
        }
    }

    /// Whether no engine finds the device `name` because of this problem.
    pub fn loses(&self, name: &str) -> bool {
        self.lost.iter().flatten().any(|lost| lost == name)
    }

    /// The order in which problems are listed: by file, then by place in it.
    pub(super) fn order(&self) -> (&Path, Option<Place>, &str) {
        (&self.path, self.at, &self.what)
    }
}

impl std::fmt::Display for Problem {
    /// `FILE:LINE:COLUMN: what; lost: devices`. Names in it come from other programs, so what would act on a terminal
    /// is escaped.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display().to_string();
        let mut line = match self.at {
            Some(at) => at.of(&path),
            None => path,
        };
        line.push_str(&format!(": {}", self.what));
        match &self.lost {
            None => line.push_str("; lost: every device in it"),
            Some(lost) if lost.is_empty() => {}
            Some(lost) => line.push_str(&format!("; lost: {}", some(lost))),
        }
        f.write_str(&shown(&line))
    }
}
