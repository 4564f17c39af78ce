//! Where a document of YAML is within the file that a person edits.

use tranche_core::types::Place;

/// Where a document is within the file that a person edits.
#[derive(Debug, Clone, Copy)]
pub enum TextOrigin {
    /// It is the file.
    File,
    /// Its first line follows this many lines, and each of its lines is indented by so many characters.
    Within {
        /// The lines before it.
        lines: u32,
        /// The characters before each of its lines.
        indent: u32,
    },
    /// Its lines cannot be found again in the file, because the text is folded or quoted. It begins here.
    At(Place),
}

impl TextOrigin {
    /// Where `inner`, a value of the file, is in it. `outer` is the text of the file, and `place` is where YAML has the
    /// value begin.
    ///
    /// The lines of a literal block (`|`) are those of the file, indented. Any other text is folded or quoted.
    pub fn of(outer: &str, place: Place, inner: &str) -> Self {
        let lines: Vec<&str> = outer.lines().collect();
        let Some((at, first)) = inner.lines().enumerate().find(|(_, line)| !line.trim().is_empty()) else {
            return Self::At(place);
        };
        // The block's header (`key: |`) is on the line where the value begins or, as some parsers count, on the one
        // before.
        for header in [place.line, place.line.saturating_sub(1)] {
            let is_header = (header as usize)
                .checked_sub(1)
                .and_then(|index| lines.get(index))
                .is_some_and(|line| line.contains('|'));
            let raw = lines.get(header as usize + at).copied().unwrap_or_default();
            if is_header && let Some(before) = raw.strip_suffix(first) {
                let indent = u32::try_from(before.chars().count()).unwrap_or(u32::MAX);
                return Self::Within { lines: header, indent };
            }
        }
        Self::At(place)
    }

    /// The place in the file of what is at `place` in the document. `None` if neither is known.
    pub fn moved(&self, place: Option<Place>) -> Option<Place> {
        match (self, place) {
            (Self::At(place), _) => Some(*place),
            (Self::Within { lines, indent }, Some(Place { line, column })) => Some(Place {
                line: line.saturating_add(*lines),
                column: column.saturating_add(*indent),
            }),
            (_, place) => place,
        }
    }
}
