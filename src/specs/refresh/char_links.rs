//! The links in `/dev/char`. MIG devices get new nodes while the machine runs, so a refresh makes their links.

use crate::device_files::{CharLink, LinkChange, links};
use std::path::Path;
use tranche_core::error::Result;
use tranche_core::text::counted;
use tranche_plan::inventory::Inventory;
use tranche_state::replace::make_directory;

/// The links for the nodes that exist.
pub(super) fn of(inventory: &Inventory) -> Vec<CharLink> {
    links(inventory, false)
}

/// Makes the links in `dir` that are missing or lead elsewhere, and says how many.
///
/// # Errors
/// Returns an error if the directory or a link cannot be made. The specifications are written then.
pub(super) fn make(dir: &Path, links: &[CharLink]) -> Result<()> {
    make_directory(dir)?;
    let mut made = 0;
    for link in links {
        if link.make(dir)? != LinkChange::Kept {
            made += 1;
        }
    }
    if made > 0 {
        tracing::info!("{}: {} made", dir.display(), counted(made, "link"));
    }
    Ok(())
}
