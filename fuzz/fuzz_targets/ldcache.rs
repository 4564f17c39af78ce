//! Any bytes as a loader's cache: no panic, and what was understood survives being written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tranche_core::ldcache::{Sorted, compare, read, write};

fuzz_target!(|bytes: &[u8]| {
    let Ok(cache) = read(bytes) else { return };
    let written = write(&Sorted::new(&cache.entries), cache.endian).expect("what was read can be written");
    assert!(written.len() <= 8 * bytes.len() + 8192, "{} bytes from {}", written.len(), bytes.len());
    let mut sorted = cache.entries.clone();
    sorted.sort_by(compare);
    let again = read(&written).expect("what was written can be read");
    assert_eq!(again.entries, sorted);
    assert_eq!(again.skipped.count, 0);
    let twice = Sorted::new(&sorted).then(Sorted::new(&again.entries));
    assert!(twice.len() <= sorted.len());
});
