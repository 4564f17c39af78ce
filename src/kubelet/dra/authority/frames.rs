//! The frames of a client: bytes in, bytes out. Section numbers are those of RFC 9113.

use super::Malformed;
use super::block::{Table, encode};

/// What a client sends before its first frame (3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The bytes before the payload of a frame: length, type, flags, stream (4.1).
const HEADER: usize = 9;

/// The longest payload, of which tonic's server does not allow more (4.2).
const MOST_PAYLOAD: usize = 16 << 10;

/// The longest block of headers, over all of its frames. Those of a kubelet have about 200 bytes.
const MOST_BLOCK: usize = 16 << 10;

const HEADERS: u8 = 1;
const PUSH_PROMISE: u8 = 5;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// The bytes of a dependency and a weight, with the flag PRIORITY (6.2).
const PRIORITY_BYTES: usize = 5;

/// What a client has sent on one connection, and what the server gets of it.
#[derive(Debug, Default)]
pub(super) struct Rewriter {
    /// What is not a whole frame yet: at most one frame and what was read with it.
    input: Vec<u8>,
    is_greeted: bool,
    /// The block of headers whose last frame has not come yet.
    open: Option<Block>,
    table: Table,
    /// Nothing is read after the first fault.
    failed: Option<Malformed>,
}

/// A block of headers.
#[derive(Debug)]
struct Block {
    /// Its stream, as in the header of a frame.
    stream: [u8; 4],
    /// Those that are kept: END_STREAM and PRIORITY.
    flags: u8,
    priority: Vec<u8>,
    encoded: Vec<u8>,
}

impl Rewriter {
    /// Takes what the client has sent next.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// Appends the next frame to `out`, if it is complete. Returns whether a frame, or a part of a block, was read.
    pub(super) fn next(&mut self, out: &mut Vec<u8>) -> Result<bool, Malformed> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        let read = self.read(out);
        self.failed = read.err();
        read
    }

    /// Whether the client may end here.
    pub(super) fn is_between_frames(&self) -> bool {
        self.input.is_empty() && self.open.is_none()
    }

    fn read(&mut self, out: &mut Vec<u8>) -> Result<bool, Malformed> {
        if !self.is_greeted {
            return self.greet(out);
        }
        let Some((header, rest)) = self.input.split_first_chunk::<HEADER>() else {
            return Ok(false);
        };
        let [a, b, c, kind, flags, stream @ ..] = *header;
        let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
        if length > MOST_PAYLOAD {
            return Err(Malformed("a frame is too long"));
        }
        let Some(payload) = rest.get(..length) else {
            return Ok(false);
        };
        let block = match (self.open.take(), kind) {
            (None, HEADERS) => Some(begin(flags, stream, payload)?),
            (None, CONTINUATION) => return Err(Malformed("CONTINUATION without HEADERS")),
            (None, PUSH_PROMISE) => return Err(Malformed("PUSH_PROMISE of a client")),
            (None, _) => {
                out.extend_from_slice(header);
                out.extend_from_slice(payload);
                None
            }
            (Some(mut block), CONTINUATION) if block.stream == stream => {
                block.encoded.extend_from_slice(payload);
                Some(block)
            }
            (Some(_), _) => return Err(Malformed("another frame inside a block of headers")),
        };
        self.input.drain(..HEADER + length);
        match block {
            Some(block) if block.encoded.len() > MOST_BLOCK => return Err(Malformed("the headers are too long")),
            Some(block) if flags & END_HEADERS != 0 => {
                let headers = self.table.decode(&block.encoded)?;
                write(&block, &encode(&headers), out);
            }
            block => self.open = block,
        }
        Ok(true)
    }

    fn greet(&mut self, out: &mut Vec<u8>) -> Result<bool, Malformed> {
        let length = self.input.len().min(PREFACE.len());
        if self.input[..length] != PREFACE[..length] {
            return Err(Malformed("the preface is missing"));
        }
        if length < PREFACE.len() {
            return Ok(false);
        }
        self.input.drain(..length);
        out.extend_from_slice(PREFACE);
        self.is_greeted = true;
        Ok(true)
    }
}

/// The block that a HEADERS frame begins (6.2).
fn begin(flags: u8, stream: [u8; 4], payload: &[u8]) -> Result<Block, Malformed> {
    let short = Malformed("HEADERS is too short");
    let (padding, rest) = match flags & PADDED {
        0 => (0, payload),
        _ => payload
            .split_first()
            .map(|(padding, rest)| (usize::from(*padding), rest))
            .ok_or(short)?,
    };
    let priority = if flags & PRIORITY == 0 { 0 } else { PRIORITY_BYTES };
    let (priority, rest) = rest.split_at_checked(priority).ok_or(short)?;
    let length = rest
        .len()
        .checked_sub(padding)
        .ok_or(Malformed("the padding is too long"))?;
    Ok(Block {
        stream,
        flags: flags & (END_STREAM | PRIORITY),
        priority: priority.to_vec(),
        encoded: rest[..length].to_vec(),
    })
}

/// Writes a block as frames without padding, which counts for no window (6.9).
fn write(block: &Block, encoded: &[u8], out: &mut Vec<u8>) {
    let (first, mut rest) = encoded.split_at(encoded.len().min(MOST_PAYLOAD - block.priority.len()));
    let last = |rest: &[u8]| if rest.is_empty() { END_HEADERS } else { 0 };
    let mut frame = |kind, flags, parts: [&[u8]; 2]| {
        let length = parts[0].len() + parts[1].len();
        // At most MOST_PAYLOAD, which has three bytes.
        out.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
        out.extend_from_slice(&[kind, flags]);
        out.extend_from_slice(&block.stream);
        parts.iter().for_each(|part| out.extend_from_slice(part));
    };
    frame(HEADERS, block.flags | last(rest), [&block.priority, first]);
    while !rest.is_empty() {
        let (next, after) = rest.split_at(rest.len().min(MOST_PAYLOAD));
        frame(CONTINUATION, last(after), [&[], next]);
        rest = after;
    }
}
