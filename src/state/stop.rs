//! How a verb that runs in the foreground is ended.

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tranche_core::error::{Context, Result};

/// A descriptor that can be read when this process gets SIGTERM, SIGINT or SIGHUP. `who` names the process in errors.
///
/// It is made before any thread is started, because each inherits what is blocked.
///
/// # Errors
/// Returns an error if the signals cannot be blocked or waited for.
pub fn signals(who: &str) -> Result<SignalFd> {
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        signals.add(signal);
    }
    signals.thread_block().about(who, "cannot block signals")?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    SignalFd::with_flags(&signals, flags).about(who, "cannot wait for signals")
}
