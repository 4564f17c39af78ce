//! Entry points to parsers for the fuzz targets (`fuzz/`). They exist only if the compiler builds for fuzzing.
#![allow(clippy::panic, clippy::missing_panics_doc, reason = "a panic is what is looked for")]

/// What a client of the registration socket sends, in pieces: how it is cut changes nothing, each request has the
/// authority `localhost`, and what the server gets passes the filter again as it is.
pub fn client(bytes: &[u8], pieces: usize) {
    use crate::dra::authority::fuzzing::{authorities, filtered};
    let whole = filtered(bytes, bytes.len());
    assert_eq!(whole, filtered(bytes, pieces));
    let (passed, _) = whole;
    for authority in authorities(&passed) {
        assert_eq!(authority, b"localhost");
    }
    let (again, fault) = filtered(&passed, passed.len());
    // Headers are longer without the table of the client: 64 KiB are written, and a block of 16 KiB is read.
    let is_expected = fault
        .as_ref()
        .is_none_or(|fault| fault.ends_with("the headers are too long"));
    assert!(is_expected, "the filter writes what it refuses: {fault:?}");
    assert!(passed.starts_with(&again), "the filter changes what it has written");
    assert!(
        fault.is_some() || again == passed,
        "the filter keeps what it has written"
    );
}
