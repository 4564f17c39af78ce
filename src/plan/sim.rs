//! Built-in inventories. With them, everybody can see what tranche does on such machines, without a GPU.
//!
//! Each is the inventory of a test host in `tests/hosts`. A test compares the two, and `make bless` writes the
//! inventories again.

use crate::inventory::{Inventory, load};
use tranche_core::error::{Error, Result};

/// One built-in inventory.
#[derive(Debug, Clone, Copy)]
pub struct Sim {
    /// The name after `sim:`.
    pub name: &'static str,
    /// A description of the machine.
    pub about: &'static str,
    /// The test host that it was made from.
    pub host: &'static str,
    text: &'static str,
}

/// The inventory in `sim/NAME.json`.
macro_rules! sim {
    ($name:literal, $host:literal, $about:literal) => {
        Sim {
            name: $name,
            about: $about,
            host: $host,
            text: include_str!(concat!("sim/", $name, ".json")),
        }
    };
}

/// All built-in inventories.
#[rustfmt::skip]
pub const ALL: &[Sim] = &[
    sim!("rtx4090", "workstation-rtx4090", "a workstation with one RTX 4090, graphics, 32-bit libraries left out"),
    sim!("dgx-a100-mig", "dgx-a100-mig", "a DGX A100, eight GPUs, MIG in every layout and in none"),
    sim!("hgx-h200", "hgx-h200", "an HGX H200, eight GPUs, NVSwitch, IMEX channels, GPUDirect storage and RDMA"),
    sim!("gb200", "gb200", "a GB200 node on aarch64, four GPUs with coherent memory, IMEX channels"),
    sim!("t4x2", "t4x2-old-driver", "a server with two T4 and driver 450"),
];

/// Opens the inventory of that name.
///
/// # Errors
/// Returns an error that lists the valid names if there is no such inventory.
pub fn open(name: &str) -> Result<Inventory> {
    match ALL.iter().find(|s| s.name == name) {
        Some(sim) => load(&format!("sim:{name}"), sim.text),
        None => {
            let names: Vec<&str> = ALL.iter().map(|s| s.name).collect();
            Err(Error::unknown(format!("built-in inventory sim:{name}"), name, &names))
        }
    }
}

/// The text for `sim:help`: one line for each inventory.
pub fn help() -> String {
    ALL.iter().map(|s| format!("sim:{:13} {}\n", s.name, s.about)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_opens() {
        for sim in ALL {
            let inventory = open(sim.name).unwrap();
            assert!(!inventory.gpus.is_empty() && inventory.driver.is_some(), "{}", sim.name);
            assert!(inventory.warnings.is_empty(), "{}: {:?}", sim.name, inventory.warnings);
            assert!(help().contains(sim.name));
        }
        assert!(open("nothing").unwrap_err().to_string().contains("dgx-a100-mig"));
    }
}
