//! Any bytes after the preface of HTTP/2, in pieces of any length, as what a client of the registration socket sends.
#![no_main]

use libfuzzer_sys::fuzz_target;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fuzz_target!(|input: (u8, &[u8])| {
    let (pieces, frames) = input;
    tranche_kubelet::fuzzing::client(&[PREFACE, frames].concat(), usize::from(pieces));
});
