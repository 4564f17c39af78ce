//! Any text as a saved inventory; what is read can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tranche_plan::inventory;

fuzz_target!(|text: &str| {
    let Ok(read) = inventory::load("saved", text) else { return };
    let again = serde_json::to_string(&read).expect("what was read can be written");
    assert_eq!(inventory::load("saved", &again).expect("and read again"), read);
});
