//! Any bytes as the config.json of a container that may ask for devices.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tranche_inject::fuzzing::container_request(bytes));
