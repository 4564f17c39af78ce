//! The end of the pipe from which questions come.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::de::DeserializeOwned;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsFd;
use std::time::Duration;

/// Reads questions.
pub(crate) struct Questions {
    input: BufReader<File>,
    /// How long the next one is waited for; `None`: for ever.
    patience: Option<Duration>,
}

impl Questions {
    /// Takes standard input, and leaves `/dev/null` to the library, which might read.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(crate) fn take(patience: Option<Duration>) -> io::Result<Self> {
        let input = BufReader::new(File::from(io::stdin().as_fd().try_clone_to_owned()?));
        nix::unistd::dup2_stdin(OpenOptions::new().read(true).open("/dev/null")?)?;
        Ok(Self { input, patience })
    }

    /// The next question; `None` at the end of the input, if no question has come for as long as it is waited for, and
    /// for a question that this program does not know.
    pub(crate) fn next<Q: DeserializeOwned>(&mut self) -> Option<Q> {
        if self.input.buffer().is_empty()
            && let Some(patience) = self.patience
        {
            let mut fds = [PollFd::new(self.input.get_ref().as_fd(), PollFlags::POLLIN)];
            let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
            poll(&mut fds, timeout).ok().filter(|ready| *ready > 0)?;
        }
        let mut line = String::new();
        self.input.read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }
}
