//! A problem in a file or directory of specifications, as a person reads it.

use crate::text::{shown, some};
use crate::types::Place;
use std::path::{Path, PathBuf};

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
}

impl Problem {
    /// A problem of `path` because of which no device is lost.
    pub fn new(path: &Path, at: Option<Place>, what: impl Into<String>) -> Self {
        Problem {
            path: path.to_owned(),
            at,
            what: what.into(),
            lost: Some(Vec::new()),
        }
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
