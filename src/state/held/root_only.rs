//! Tells users other than root that the ledger belongs to root, before an error about one of its files does.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tranche_core::error::Error;

/// Checks that this user can use the ledger in `state_dir`, or create it.
///
/// # Errors
/// Returns an error if the ledger belongs to another user, or only root can create it.
pub fn check(state_dir: &Path) -> Result<(), Error> {
    let me = nix::unistd::geteuid();
    if me.is_root() {
        return Ok(());
    }
    let nearest = state_dir.ancestors().find_map(|dir| std::fs::metadata(dir).ok());
    if nearest.is_some_and(|m| m.uid() == me.as_raw()) {
        return Ok(());
    }
    Err(Error::failed(
        "shares",
        format!(
            "only root can see, take and release them on this machine (the ledger is {})",
            state_dir.display()
        ),
    )
    .hint("run this command as root"))
}
