mod cases;
mod input;
mod observed;
mod properties;

use super::*;
use crate::inventory::{Architecture, VirtualizationMode};
use crate::mig::described;
use crate::{share, sim};
use tranche_core::error::line;

/// The advice for wishes as text.
fn advised(inventory: &Inventory, wishes: &str) -> Result<Advice> {
    advise(&read("w.yaml", wishes)?, inventory, &described(inventory).0)
}

/// The built-in machine with these of its GPUs, numbered anew.
fn machine(name: &str, gpus: Option<&[u32]>) -> Inventory {
    let mut inventory = sim::open(name).unwrap();
    if let Some(kept) = gpus {
        inventory.gpus.retain(|gpu| kept.contains(&gpu.index.0));
        for (index, gpu) in (0..).zip(&mut inventory.gpus) {
            gpu.index.0 = index;
        }
    }
    inventory
}
