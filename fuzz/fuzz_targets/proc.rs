//! Any text as the files that the kernel and the driver write.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| tranche_host::fuzzing::kernel_texts(text));
