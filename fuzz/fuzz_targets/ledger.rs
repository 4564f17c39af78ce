//! Any text as a device's book in the ledger.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| tranche_core::fuzzing::ledger_book(text));
