//! Files of configurations that NVIDIA's mig-parted reads.

use anyhow::Result;
use std::path::Path;
use tranche_core::error::Error;
use tranche_plan::mig::mig_parted::{self, Configuration};

/// Reads the configuration `selected` of a file of mig-parted; `-` is stdin.
pub(super) fn read(file: &Path, selected: Option<&str>) -> Result<Configuration> {
    let name = file.display().to_string();
    let text = match name.as_str() {
        "-" => std::io::read_to_string(std::io::stdin()),
        _ => std::fs::read_to_string(file),
    };
    let text = text.map_err(|error| Error::usage(&name, "cannot be read").from_source(error))?;
    Ok(mig_parted::read(&name, &text, selected)?)
}
