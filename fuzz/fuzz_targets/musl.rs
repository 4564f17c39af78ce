//! Any bytes as musl's path file: what the image has stays, and ours is there once.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use tranche_core::ldcache::musl::with_directories;

fuzz_target!(|bytes: &[u8]| {
    let directory = Path::new("/usr/lib/x86_64-linux-gnu");
    let Ok(Some(written)) = with_directories(Some(bytes), &[directory]) else { return };
    assert!(written.len() <= bytes.len() + 64);
    assert_eq!(with_directories(Some(&written), &[directory]).expect("ours is readable"), None);
});
