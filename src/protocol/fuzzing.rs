//! The entry point to the parser of requests for its fuzz target (`fuzz/`). It exists only if the compiler builds for
//! fuzzing.
#![allow(clippy::panic, clippy::missing_panics_doc, reason = "a panic is what is looked for")]

/// A line that a client sends to the broker: it is a request, or it is refused in one line.
pub fn broker_request(line: &[u8]) {
    if let Err(error) = crate::Request::parse(line) {
        assert_eq!(tranche_core::error::line(&error).lines().count(), 1);
    }
}
