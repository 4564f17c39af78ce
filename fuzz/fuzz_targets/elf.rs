//! Any bytes as a library: no panic, no more than a limit of memory, and a SONAME that can be a file's name.
#![no_main]

use std::os::unix::ffi::OsStrExt;

use libfuzzer_sys::fuzz_target;
use tranche_core::elf;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(elf::SharedLibrary { soname: Some(name), .. }) = elf::read(bytes) {
        let name = name.as_bytes();
        assert!(!name.is_empty() && name.len() <= 255 && !name.contains(&b'/') && !name.contains(&0));
    }
    if let Ok(Some(content)) = elf::note(bytes, ".note.cuda.fwd_compatibility", "NVIDIA Corporation") {
        assert!(content.len() <= bytes.len());
    }
});
