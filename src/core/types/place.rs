//! A place in a text file.

use serde::{Deserialize, Serialize};

/// A line and a column, both from 1; both are 0 for what comes from no file.
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
