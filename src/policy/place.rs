//! Where something is in a policy's file, kept until planning, so that every message can say it.

use serde::{Deserialize, Serialize};

/// A line and a column, both from 1; both are 0 where there was no file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// The line.
    pub line: u32,
    /// The column, in characters.
    pub column: u32,
}

impl Place {
    /// The place as editors and people read it: `config.yaml:5:7`.
    pub fn of(self, file: &str) -> String {
        match self.line {
            0 => file.to_owned(),
            line => format!("{file}:{line}:{}", self.column),
        }
    }
}

/// A value, and where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placed<T> {
    /// Where it is.
    pub place: Place,
    /// What it is.
    pub value: T,
}
