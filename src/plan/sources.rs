//! Opens a saved inventory: from a file, from standard input, or a built-in one.

use crate::inventory::{Inventory, load};
use crate::sim;
use std::fs::File;
use std::io::{self, Read};
use tranche_core::bounded;
use tranche_core::error::{Error, Result};

/// The largest inventory, in bytes. That of sixteen GPUs with seven MIG devices each has a quarter of a megabyte.
const MAX_BYTES: u64 = 64 << 20;

/// Opens `spec`: a path, `-` for standard input, `sim:NAME` for a built-in inventory.
///
/// # Errors
/// Returns an error if it cannot be read or is not a valid inventory.
pub fn open(spec: &str) -> Result<Inventory> {
    if let Some(name) = spec.strip_prefix("sim:") {
        return sim::open(name);
    }
    if spec == "-" {
        return load("stdin", &text("stdin", io::stdin().lock())?);
    }
    let file = File::open(spec).map_err(|e| Error::usage(spec, "cannot be opened").from_source(e))?;
    load(spec, &text(spec, file)?)
}

fn text(name: &str, from: impl Read) -> Result<String> {
    let bytes = bounded::read(from, MAX_BYTES).map_err(|e| Error::usage(name, "cannot be read").from_source(e))?;
    String::from_utf8(bytes).map_err(|e| Error::usage(name, "is not valid UTF-8").from_source(e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn files_and_built_in_ones() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let inventory = open("sim:t4x2").unwrap();
        file.write_all(serde_json::to_string(&inventory).unwrap().as_bytes())
            .unwrap();
        assert_eq!(open(file.path().to_str().unwrap()).unwrap(), inventory);
        assert!(
            open("/nonexistent/x.json")
                .unwrap_err()
                .to_string()
                .starts_with("/nonexistent/x.json: ")
        );
    }
}
