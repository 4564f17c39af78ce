//! Entry points to parsers for the fuzz targets (`fuzz/`). They exist only if the compiler builds for fuzzing.
#![allow(clippy::panic, clippy::missing_panics_doc, reason = "a panic is what is looked for")]

/// The book of a GPU in the ledger.
pub fn ledger_book(text: &str) {
    if let Some(book) = crate::ledger::parse_book(text) {
        let _ = book.is_sound();
    }
}

/// A line that a client sends to the broker: it is a request, or it is refused in one line.
pub fn broker_request(line: &[u8]) {
    if let Err(error) = crate::broker::Request::parse(line) {
        assert_eq!(crate::error::line(&error).lines().count(), 1);
    }
}
