//! Text in JSON.

use std::borrow::{Borrow, Cow};

use serde::Deserialize;

/// A text that is compared and rarely kept. It is copied only if it has an escape in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct Word<'a>(#[serde(borrow)] Cow<'a, str>);

impl Word<'_> {
    /// The text, without escapes.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Word<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}
