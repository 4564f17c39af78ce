//! Any text as a device's book in the ledger.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| tranche::fuzzing::ledger_book(text));
