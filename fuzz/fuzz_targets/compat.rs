//! Any bytes as the note of a compatibility library, any text as its name and as the driver's parameters.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|parts: (&str, &[u8], &str)| tranche_hook::fuzzing::driver_texts(parts.0, parts.1, parts.2));
