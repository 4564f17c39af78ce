//! Reads a saved inventory.

use super::{FORMAT, Inventory};
use crate::error::{Error, Result};
use serde::Deserialize;

#[derive(Deserialize)]
struct Head {
    format: u32,
}

/// Reads an inventory that `tranche inventory` wrote. `name` says in an error where the text is from.
///
/// # Errors
/// Text that is no inventory, with line and column; one of a newer form, of which we would drop what we do not know.
pub fn load(name: &str, text: &str) -> Result<Inventory> {
    let wrong = |e: serde_json::Error| {
        Error::usage(name, "not an inventory")
            .from_source(e)
            .hint("tranche inventory writes one")
    };
    let head: Head = serde_json::from_str(text).map_err(wrong)?;
    if head.format > FORMAT {
        return Err(Error::usage(
            name,
            format!(
                "is an inventory of form {}, this program reads up to {FORMAT}",
                head.format
            ),
        )
        .hint("read it with a newer tranche, or write it with this one"));
    }
    serde_json::from_str(text).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{Arch, Platform, PlatformKind};

    fn empty() -> Inventory {
        Inventory::empty(Platform {
            arch: Arch::X86_64,
            kind: PlatformKind::Linux,
            kernel: "6.1.0".to_owned(),
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
        let e = load("file.json", &unknown).unwrap_err().to_string();
        assert!(e.contains("more") && e.contains("line 1"), "{e}");
        assert!(load("x", "").is_err());
        assert!(load("x", "[]").is_err());
    }
}
