//! A line that a client sends to the broker.
#![no_main]

libfuzzer_sys::fuzz_target!(|line: &[u8]| tranche_protocol::fuzzing::broker_request(line));
