//! Says to users other than root that the ledger is root's, before anything else fails in words about files.

use crate::error::Error;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Fails where this user cannot use the ledger in `state_dir`: it is root's, or would have to be made by root.
///
/// # Errors
/// Returns an error that says so.
pub(super) fn check(state_dir: &Path) -> Result<(), Error> {
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
