//! The window of a terminal: its size, and the keys that are pressed in it.

use anyhow::Result;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use rustix::termios::{tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr};
use std::io::{IsTerminal, stdin, stdout};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use tranche_core::error::Context;

/// How often the size is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Narrower than this, no line of a page makes sense, and a terminal that does not know its size has 0.
const NARROWEST: usize = 20;

/// The columns and rows of the terminal that standard output is; `None` if it is none, or does not know its size.
pub(super) fn size() -> Option<(usize, usize)> {
    let stdout = stdout();
    let size = stdout.is_terminal().then(|| tcgetwinsize(&stdout).ok()).flatten()?;
    let (columns, rows) = (usize::from(size.ws_col), usize::from(size.ws_row));
    (columns >= NARROWEST && rows > 0).then_some((columns, rows))
}

/// The columns.
pub(super) fn width() -> Option<usize> {
    size().map(|(columns, _)| columns)
}

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pressed {
    /// `q`, or the end of input.
    Quit,
    /// The window has another size.
    Resized,
    /// Nothing until the time was over.
    Nothing,
}

/// Keys that reach this process one by one, and signals that end it after the terminal is as it was. Where standard
/// input is no terminal, or belongs to another job, only signals do.
pub(super) struct Keys {
    signals: SignalFd,
    blocked_before: SigSet,
    before: Option<Termios>,
}

impl Keys {
    /// Takes them until this value is dropped.
    ///
    /// # Errors
    /// Returns an error if signals cannot be waited for.
    pub(super) fn take() -> Result<Self> {
        let mut ends = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT] {
            ends.add(signal);
        }
        let blocked_before = ends
            .thread_swap_mask(SigmaskHow::SIG_BLOCK)
            .about("signals", "cannot be blocked")?;
        let signals = SignalFd::with_flags(&ends, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
        Ok(Self {
            signals: signals.about("signals", "cannot be waited for")?,
            blocked_before,
            before: one_by_one(),
        })
    }

    /// Waits until something happens, or until the time. `is_resized` is asked again and again.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(super) fn wait(&mut self, until: Instant, is_resized: impl Fn() -> bool) -> Result<Pressed> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let stdin = stdin();
            let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
            if self.before.is_some() {
                fds.push(PollFd::new(stdin.as_fd(), PollFlags::POLLIN));
            }
            let timeout = PollTimeout::try_from(left.min(LOOK)).unwrap_or(PollTimeout::ZERO);
            poll(&mut fds, timeout).about("terminal", "cannot be waited for")?;
            let has = |at: usize| fds.get(at).is_some_and(|fd| fd.any() == Some(true));
            let (is_signal, is_key) = (has(0), has(1));
            if is_signal && let Ok(Some(signal)) = self.signals.read_signal() {
                self.end_by(signal.ssi_signo);
            }
            let mut key = [0];
            if is_key
                && matches!(nix::unistd::read(stdin.as_fd(), &mut key), Ok(0 | 1))
                && matches!(key[0], b'q' | b'Q' | 0 | 4)
            {
                return Ok(Pressed::Quit);
            }
            if is_resized() {
                return Ok(Pressed::Resized);
            }
            if left.is_zero() {
                return Ok(Pressed::Nothing);
            }
        }
    }

    /// Ends this process by the signal, as if it had not been waited for.
    fn end_by(&mut self, number: u32) {
        self.put_back();
        if let Some(signal) = i32::try_from(number)
            .ok()
            .and_then(|number| Signal::try_from(number).ok())
        {
            // It ends this process here, unless its parent has it ignored.
            let _ = raise(signal);
        }
    }

    fn put_back(&mut self) {
        if let Some(before) = self.before.take() {
            // A terminal that is gone needs nothing.
            let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
        }
        let _ = self.blocked_before.thread_set_mask();
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.put_back();
    }
}

/// Has the terminal give each key at once and show none. Returns how it was; `None` if it was left as it is.
fn one_by_one() -> Option<Termios> {
    let stdin = stdin();
    if !stdin.is_terminal() || tcgetpgrp(&stdin).ok() != Some(rustix::process::getpgrp()) {
        return None;
    }
    let before = tcgetattr(&stdin).ok()?;
    let mut keys = before.clone();
    keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    keys.special_codes[SpecialCodeIndex::VMIN] = 1;
    keys.special_codes[SpecialCodeIndex::VTIME] = 0;
    tcsetattr(&stdin, OptionalActions::Now, &keys).ok()?;
    Some(before)
}
