//! A block of headers. Section numbers are those of RFC 7541 (HPACK).

use super::Malformed;
use fluke_hpack::Decoder;
use std::fmt;

/// The largest table of a client, if the server announces nothing (RFC 9113, 6.5.2).
const MOST_TABLE: usize = 4096;

/// The most bytes of all headers of a request after decoding: an index of one byte may be a header of 4 KiB.
const MOST_DECODED: usize = 64 << 10;

/// The most bytes of an integer: fluke-hpack reads no more.
const MOST_INTEGER: usize = 5;

const AUTHORITY: &[u8] = b":authority";

/// What all requests have in its place.
const LOCALHOST: &[u8] = b"localhost";

/// A name and a value.
type Header = (Vec<u8>, Vec<u8>);

/// The headers that a client may refer to in its later requests.
pub(super) struct Table(Decoder<'static>);

impl Default for Table {
    fn default() -> Self {
        let mut decoder = Decoder::new();
        decoder.set_max_allowed_table_size(MOST_TABLE);
        Self(decoder)
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}

impl Table {
    /// The headers of a block, with the authority `localhost`.
    pub(super) fn decode(&mut self, block: &[u8]) -> Result<Vec<Header>, Malformed> {
        check(block)?;
        let mut headers = Vec::new();
        let mut bytes = 0;
        let decoded = self.0.decode_with_cb(block, |name, value| {
            bytes += name.len() + value.len();
            if bytes > MOST_DECODED {
                return;
            }
            let value = if *name == *AUTHORITY { LOCALHOST.into() } else { value };
            headers.push((name.into_owned(), value.into_owned()));
        });
        match decoded {
            Err(_) => Err(Malformed("the headers cannot be decoded")),
            Ok(()) if bytes > MOST_DECODED => Err(Malformed("the headers are too long")),
            Ok(()) => Ok(headers),
        }
    }
}

/// Headers as literals that no table gets (6.2.2), so that the server needs nothing of earlier blocks.
pub(super) fn encode(headers: &[Header]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(0);
        for text in [name, value] {
            put_length(text.len(), &mut block);
            block.extend_from_slice(text);
        }
    }
    block
}

/// The length of a string without Huffman code: an integer with a prefix of 7 bits (5.1).
fn put_length(length: usize, to: &mut Vec<u8>) {
    const PREFIX: usize = 0x7f;
    if length < PREFIX {
        return to.push(length as u8);
    }
    to.push(PREFIX as u8);
    let mut rest = length - PREFIX;
    while rest >= 0x80 {
        to.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    to.push(rest as u8);
}

/// Checks that no part of a block is cut off, and that changes of the table's size come first (4.2) and are allowed.
/// fluke-hpack 0.3.1 panics at a change of the size that is cut off.
fn check(block: &[u8]) -> Result<(), Malformed> {
    let mut rest = block;
    let mut is_first = true;
    while let Some(&octet) = rest.first() {
        let is_change = octet & 0xe0 == 0x20;
        if octet & 0x80 != 0 {
            integer(&mut rest, 7)?;
        } else if is_change {
            if integer(&mut rest, 5)? > MOST_TABLE || !is_first {
                return Err(Malformed("a change of the table's size is not allowed"));
            }
        } else {
            let prefix = if octet & 0x40 == 0 { 4 } else { 6 };
            if integer(&mut rest, prefix)? == 0 {
                string(&mut rest)?;
            }
            string(&mut rest)?;
        }
        is_first &= is_change;
    }
    Ok(())
}

/// Reads an integer whose first byte has `prefix` bits of it (5.1).
fn integer(rest: &mut &[u8], prefix: u8) -> Result<usize, Malformed> {
    let cut = Malformed("an integer is cut off");
    let (&first, mut after) = rest.split_first().ok_or(cut)?;
    let mask = 0xff_u8 >> (8 - prefix);
    let mut value = usize::from(first & mask);
    if value == usize::from(mask) {
        let mut shift = 0;
        loop {
            let (&next, others) = after.split_first().ok_or(cut)?;
            value += usize::from(next & 0x7f) << shift;
            after = others;
            shift += 7;
            if next & 0x80 == 0 {
                break;
            }
            if shift / 7 + 1 == MOST_INTEGER {
                return Err(Malformed("an integer is too long"));
            }
        }
    }
    *rest = after;
    Ok(value)
}

/// Reads a string (5.2).
fn string(rest: &mut &[u8]) -> Result<(), Malformed> {
    let length = integer(rest, 7)?;
    *rest = rest.get(length..).ok_or(Malformed("a string is cut off"))?;
    Ok(())
}
