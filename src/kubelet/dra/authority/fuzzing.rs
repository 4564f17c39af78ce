//! What passes the filter, for its fuzz target.
#![allow(clippy::panic, reason = "a panic is what is looked for")]

use super::frames::Rewriter;
use fluke_hpack::Decoder;

/// What the server gets of `bytes`, which come in pieces of this length, and why it gets nothing more.
pub(crate) fn filtered(bytes: &[u8], pieces: usize) -> (Vec<u8>, Option<String>) {
    let mut rewriter = Rewriter::default();
    let mut out = Vec::new();
    for piece in bytes.chunks(pieces.max(1)) {
        rewriter.take(piece);
        loop {
            match rewriter.next(&mut out) {
                Ok(true) => {}
                Ok(false) => break,
                Err(fault) => return (out, Some(fault.to_string())),
            }
        }
    }
    (out, None)
}

/// The authorities of the requests in what the server gets, read with a table that no earlier request has filled.
pub(crate) fn authorities(passed: &[u8]) -> Vec<Vec<u8>> {
    const PREFACE: usize = 24;
    let mut rest = passed.get(PREFACE..).unwrap_or_default();
    let (mut found, mut block) = (Vec::new(), Vec::new());
    while let Some((header, after)) = rest.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
        let (kind, flags) = (header[3], header[4]);
        // The priority of a HEADERS frame (RFC 9113, 6.2); another frame is no part of a block.
        let begin = match kind {
            1 if flags & 0x20 != 0 => 5,
            1 | 9 => 0,
            _ => length,
        };
        block.extend_from_slice(&after[begin..length]);
        rest = &after[length..];
        if matches!(kind, 1 | 9) && flags & 0x4 != 0 {
            let headers = Decoder::new().decode(&block);
            let headers = headers.unwrap_or_else(|e| panic!("the filter writes {block:?}: {e:?}"));
            let own = headers.into_iter().filter(|(name, _)| name == b":authority");
            found.extend(own.map(|(_, value)| value));
            block.clear();
        }
    }
    found
}
