//! Waits for a program, and passes signals on to it.

use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;
use std::process::{Child, ExitStatus};
use tranche_core::error::{Context, Error};

/// The signals that are passed on. The others stop this process and the program alike, or cannot be caught.
const PASSED_ON: [Signal; 7] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
];

/// `SI_KERNEL`: the kernel sent the signal (sigaction(2)).
const BY_THE_KERNEL: i32 = 0x80;

/// Waits until `child` has ended. Until then, signals to this process are passed on.
///
/// # Errors
/// Returns an error if signals cannot be read.
pub(super) fn wait(child: &mut Child) -> Result<ExitStatus, Error> {
    let signals: SigSet = PASSED_ON.into_iter().chain([Signal::SIGCHLD]).collect();
    signals.thread_block().about("signals", "cannot be held back")?;
    let queue = SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC).about("signals", "cannot be read")?;
    loop {
        // Before the first signal is read: the child may have ended before its signal was held back.
        if let Some(status) = child.try_wait().about("program", "cannot be waited for")? {
            return Ok(status);
        }
        let Some(info) = queue.read_signal().about("signals", "cannot be read")? else {
            continue;
        };
        let signal = i32::try_from(info.ssi_signo)
            .ok()
            .and_then(|number| Signal::try_from(number).ok());
        let is_passed_on = signal.is_some_and(|signal| PASSED_ON.contains(&signal));
        // A terminal sends its signals to the program as well, which must not get them twice.
        if !is_passed_on || info.ssi_code == BY_THE_KERNEL {
            continue;
        }
        let pid = i32::try_from(child.id()).map(Pid::from_raw);
        if let (Ok(pid), Some(signal)) = (pid, signal) {
            // The child has not been waited for, so the number is still its own. One that has ended needs no signal.
            let _ = kill(pid, signal);
        }
    }
}
