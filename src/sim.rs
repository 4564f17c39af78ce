//! Built-in inventories. With them, everybody can see what tranche does on such machines, without a GPU.
//!
//! Each is the inventory of a test host in `tests/hosts`. A test compares the two, and `make bless` writes the inventories
//! anew.

use crate::error::{Error, Result};
use crate::inventory::{Inventory, load};

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

/// All built-in inventories.
pub const ALL: &[Sim] = &[
    Sim {
        name: "rtx4090",
        about: "a workstation with one RTX 4090, graphics, 32-bit libraries left out",
        host: "workstation-rtx4090",
        text: include_str!("sim/rtx4090.json"),
    },
    Sim {
        name: "dgx-a100-mig",
        about: "a DGX A100, eight GPUs, MIG in every layout and in none",
        host: "dgx-a100-mig",
        text: include_str!("sim/dgx-a100-mig.json"),
    },
    Sim {
        name: "hgx-h200",
        about: "an HGX H200, eight GPUs, NVSwitch, IMEX channels, GPUDirect storage and RDMA",
        host: "hgx-h200",
        text: include_str!("sim/hgx-h200.json"),
    },
    Sim {
        name: "gb200",
        about: "a GB200 node on aarch64, four GPUs with coherent memory, IMEX channels",
        host: "gb200",
        text: include_str!("sim/gb200.json"),
    },
    Sim {
        name: "t4x2",
        about: "a server with two T4 and driver 450",
        host: "t4x2-old-driver",
        text: include_str!("sim/t4x2.json"),
    },
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
            Err(Error::unknown(format!("built-in inventory sim:{name}"), &names))
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
