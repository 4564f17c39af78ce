//! The limits on resources that the container's user chose, which runtimes (crun) apply to hooks too.
//!
//! A hook that is ended in the middle by the limit on the size of files leaves the image half changed. So the limits are
//! lifted where that is allowed. Where it is not, a write that is too large is an error like any other.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};

use crate::error::{Context, Error, Result};

/// Open files that a hook needs, with room to spare: a handle for each directory on its way, and a few for itself.
const FILES: u64 = 64;

/// Lifts the limits, as far as this process may.
///
/// # Errors
/// A limit on open files that is too small to work with and cannot be lifted.
pub(super) fn lift() -> Result<()> {
    // Without this signal a write beyond the limit fails with EFBIG, and what was begun is undone.
    let mut too_large = SigSet::empty();
    too_large.add(Signal::SIGXFSZ);
    too_large.thread_block().about("hook", "cannot block SIGXFSZ")?;
    for resource in [Resource::RLIMIT_FSIZE, Resource::RLIMIT_DATA, Resource::RLIMIT_AS] {
        let (soft, hard) = getrlimit(resource).about("hook", "cannot read its limits")?;
        if soft != RLIM_INFINITY && setrlimit(resource, RLIM_INFINITY, RLIM_INFINITY).is_err() {
            // Without CAP_SYS_RESOURCE: what is left is what everybody may do.
            setrlimit(resource, hard, hard).about("hook", "cannot lift its limits")?;
        }
    }
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).about("hook", "cannot read its limits")?;
    if soft >= FILES {
        return Ok(());
    }
    if setrlimit(Resource::RLIMIT_NOFILE, FILES, hard.max(FILES)).is_err() {
        let what = format!("the container's limit of {hard} open files is too small for it");
        return Err(Error::failed("hook", what).hint("allow 64 or more (podman: --ulimit nofile=64)"));
    }
    Ok(())
}
