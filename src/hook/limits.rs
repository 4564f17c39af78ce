//! The limits on resources that the container's user chose, which runtimes (crun) apply to hooks too.
//!
//! A hook that is ended in the middle by the limit on the size of files leaves the image half changed. So the limits
//! are lifted where that is allowed. Where it is not, a write that is too large is an error like any other.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};

use tranche_core::error::{Context, Error, Result};

/// Bytes of stack that a hook needs, several times over: the kernel ends a process whose stack would grow beyond its
/// limit.
const STACK: u64 = 256 << 10;

/// Open files that a hook needs, with room to spare: a handle for each directory on its way, and a few for itself.
const FILES: u64 = 64;

/// Lifts the limits, as far as this process may.
///
/// # Errors
/// Returns an error if the limit on open files or on the stack is too small to work with and cannot be lifted.
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
    at_least(Resource::RLIMIT_STACK, STACK, "bytes of stack", "--ulimit stack=262144")?;
    at_least(Resource::RLIMIT_NOFILE, FILES, "open files", "--ulimit nofile=64")
}

/// Raises a limit that is below `needed`. The kernel looks at the limit of the stack whenever the stack grows, so a
/// higher one counts at once.
fn at_least(resource: Resource, needed: u64, unit: &str, podman: &str) -> Result<()> {
    let (soft, hard) = getrlimit(resource).about("hook", "cannot read its limits")?;
    if soft >= needed || setrlimit(resource, needed, hard.max(needed)).is_ok() {
        return Ok(());
    }
    let what = format!("the container's limit of {hard} {unit} is too small for it");
    Err(Error::failed("hook", what).hint(format!("allow {needed} or more (podman: {podman})")))
}
