//! Any text as a policy: no panic, and what was understood can be planned or is refused, in one line with a place.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tranche_plan::inventory::Inventory;
use tranche_plan::{policy, share};

fuzz_target!(|text: &str| {
    let read = match policy::read::parse("p.yaml", text) {
        Ok(read) => read,
        Err(error) => {
            let line = tranche_core::error::line(&error);
            assert!(line.starts_with("p.yaml:") && !line.contains('\n'), "{line}");
            return;
        }
    };
    let inventory: Inventory = serde_json::from_str(include_str!("../../src/plan/sim/dgx-a100-mig.json")).expect("ours");
    if let Ok(plan) = share::plan(&read.policy, &inventory) {
        for device in &plan.devices {
            assert!(!device.shares.is_empty());
        }
    }
});
