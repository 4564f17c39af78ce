//! Any bytes, in pieces, as what the child that asks NVML says.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|pieces: Vec<Vec<u8>>| tranche_host::fuzzing::nvml_answer(&pieces));
