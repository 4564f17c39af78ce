//! Claims that were found in the text of a book and not read to the end. Most claims have nothing to do with the
//! container that is starting: it is enough to know what they hold, and their lines are copied as they are.

use crate::types::{DeviceKey, HeldPart};
use std::ops::Range;
use std::sync::Arc;

/// A claim that was not read to the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnreadClaim {
    /// The device.
    pub(super) device: Arc<DeviceKey>,
    /// What it holds of it.
    pub(super) part: HeldPart,
    /// As [`super::Claim::joined`].
    pub(super) joined: bool,
    /// Where its line is in the text, without the end of the line.
    pub(super) line: Range<usize>,
}

/// The text of a book, and those of its claims that were not read to the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Unread {
    pub(super) text: String,
    pub(super) claims: Vec<UnreadClaim>,
}

impl Unread {
    /// What each of them holds, without those that have joined another.
    pub(super) fn parts(&self) -> impl Iterator<Item = (&DeviceKey, &HeldPart)> + Clone {
        let counted = self.claims.iter().filter(|raw| !raw.joined);
        counted.map(|raw| (&*raw.device, &raw.part))
    }

    /// What those use that have joined another.
    pub(super) fn joined(&self) -> impl Iterator<Item = (&DeviceKey, &HeldPart)> {
        let joined = self.claims.iter().filter(|raw| raw.joined);
        joined.map(|raw| (&*raw.device, &raw.part))
    }

    /// Their lines in their order, each with its end; lines that follow one another in the text are one piece.
    pub(super) fn lines(&self) -> Vec<&str> {
        let mut pieces: Vec<Range<usize>> = Vec::new();
        for raw in &self.claims {
            match pieces.last_mut() {
                Some(piece) if piece.end == raw.line.start => piece.end = raw.line.end + 1,
                _ => pieces.push(raw.line.start..raw.line.end + 1),
            }
        }
        pieces.into_iter().filter_map(|piece| self.text.get(piece)).collect()
    }
}
