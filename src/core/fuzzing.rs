//! Entry points to parsers for the fuzz targets (`fuzz/`). They exist only if the compiler builds for fuzzing.
#![allow(clippy::panic, clippy::missing_panics_doc, reason = "a panic is what is looked for")]

/// The book of a GPU in the ledger.
pub fn ledger_book(text: &str) {
    if let Some(book) = crate::ledger::parse_book(text) {
        let _ = book.is_sound();
    }
}
