//! Reads a saved inventory.

use super::{FORMAT, Gpu, Inventory, MigDevice, MigInstance, Source};
use serde::Deserialize;
use tranche_core::error::{Error, Result};

#[derive(Deserialize)]
struct Head {
    format: u32,
}

/// Reads an inventory that `tranche inventory` wrote. `name` says in an error where the text is from.
///
/// # Errors
/// Returns an error if the text is not an inventory, with line and column, or has a newer format, whose unknown fields
/// would be lost.
pub fn load(name: &str, text: &str) -> Result<Inventory> {
    let wrong = |e: serde_json::Error| {
        Error::usage(name, "not an inventory")
            .from_source(e)
            .hint("tranche inventory writes one")
    };
    let head: Head = serde_json::from_str(text).map_err(wrong)?;
    if head.format > FORMAT {
        let what = format!(
            "is an inventory of form {}, this program reads up to {FORMAT}",
            head.format
        );
        return Err(Error::usage(name, what).hint("read it with a newer tranche, or write it with this one"));
    }
    let mut inventory: Inventory = serde_json::from_str(text).map_err(wrong)?;
    if inventory.source == Source::Proc {
        without_guesses(&mut inventory.gpus);
    }
    Ok(inventory)
}

/// Takes away what programs before this one guessed where NVML did not answer: they numbered MIG devices in the order
/// of `/proc`, and GPUs in the order of their addresses whatever the driver's minors said.
fn without_guesses(gpus: &mut [Gpu]) {
    let in_order = (0..)
        .zip(gpus.iter())
        .all(|(place, gpu)| gpu.index.0 == place && gpu.minor.0 == place);
    for gpu in gpus {
        gpu.index_is_known &= in_order;
        let (named, guessed): (Vec<MigDevice>, Vec<MigDevice>) = std::mem::take(&mut gpu.mig_devices)
            .into_iter()
            .partition(|mig| mig.uuid.is_some());
        gpu.mig_devices = named;
        gpu.unnamed_instances.extend(guessed.iter().map(|mig| MigInstance {
            gpu_instance: mig.gpu_instance,
            compute_instance: Some(mig.compute_instance),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{Arch, Platform, PlatformKind};
    use tranche_core::error::line;

    fn empty() -> Inventory {
        Inventory::empty(Platform {
            arch: Arch::X86_64,
            kind: PlatformKind::Linux,
            kernel: "6.1.0".to_owned(),
            cgroup_v2: false,
        })
    }

    #[test]
    fn what_was_saved_is_loaded() {
        let text = serde_json::to_string(&empty()).unwrap();
        assert_eq!(load("x", &text).unwrap(), empty());
    }

    #[test]
    fn what_is_newer_or_unknown_is_refused() {
        let newer = serde_json::to_string(&empty())
            .unwrap()
            .replace("\"format\":1", "\"format\":2,\"more\":true");
        let e = load("file.json", &newer).unwrap_err().to_string();
        assert!(e.starts_with("file.json: is an inventory of form 2"), "{e}");
        let unknown = serde_json::to_string(&empty())
            .unwrap()
            .replace("\"format\":1", "\"format\":1,\"more\":true");
        let e = line(&load("file.json", &unknown).unwrap_err());
        assert!(e.contains("more") && e.contains("line 1"), "{e}");
        assert!(load("x", "").is_err());
        assert!(load("x", "[]").is_err());
    }
}
