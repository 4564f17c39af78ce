//! The end of the pipe into which answers go.

use crate::convert::{meaning, missing_function};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, setrlimit};
use nvml_wrapper::error::NvmlError;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use tranche_core::driver_rights;
use tranche_driver_protocol::Line;

/// While the library answers, the parent hears from the program at least this often. A fast library is not slowed down
/// by one line for each call.
const SIGN_OF_LIFE: Duration = Duration::from_millis(20);

/// Where answers are written.
pub(crate) struct Pipe {
    file: File,
    /// Missing functions that were reported already.
    missing: BTreeSet<String>,
    written: Instant,
}

impl Pipe {
    /// Takes standard output, and leaves /dev/null to the library, which might print. Prepares the process for its end,
    /// and gives up what the library may not do.
    ///
    /// # Errors
    /// Returns `BrokenPipe` if the parent has ended, or the kernel's error.
    pub(crate) fn take() -> io::Result<Self> {
        without_core_files()?;
        // If the parent ends, a library that hangs must not stay behind.
        nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)?;
        // A parent that ended before that sends no signal, but it no longer reads.
        if !has_reader(io::stdout())? {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let pipe = Self::of_standard_output()?;
        driver_rights::give_up()?;
        Ok(pipe)
    }

    /// Takes standard output, and leaves /dev/null to the library.
    ///
    /// # Errors
    /// Returns the kernel's error.
    pub(crate) fn of_standard_output() -> io::Result<Self> {
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        nix::unistd::dup2_stdout(OpenOptions::new().write(true).open("/dev/null")?)?;
        Ok(Self {
            file,
            missing: BTreeSet::new(),
            written: Instant::now(),
        })
    }

    /// Writes one line at once, because the next call of the library may not return. Without a reader, the process
    /// ends.
    pub(crate) fn write(&mut self, line: &impl Serialize) {
        self.written = Instant::now();
        let text = serde_json::to_string(line).map(|text| text + "\n");
        if text.is_ok_and(|text| self.file.write_all(text.as_bytes()).is_ok()) {
            return;
        }
        std::process::exit(1);
    }

    /// Reports that the library has answered, if nothing was written for a while.
    pub(crate) fn alive(&mut self) {
        if self.written.elapsed() >= SIGN_OF_LIFE {
            self.write(&Line::Alive);
        }
    }

    /// The value of a call about `object`. An error is reported, unless the device lacks the feature, as most GPUs lack
    /// some.
    pub(crate) fn value<T>(&mut self, object: &str, what: &str, answer: Result<T, NvmlError>) -> Option<T> {
        self.alive();
        let error = match answer {
            Ok(value) => return Some(value),
            Err(NvmlError::NotSupported) => return None,
            Err(error) => error,
        };
        match missing_function(&error) {
            Some(name) => {
                if self.missing.insert(name.to_owned()) {
                    self.write(&Line::Missing(name.to_owned()));
                }
            }
            None => self.write(&Line::Problem {
                object: object.to_owned(),
                text: format!("NVML does not report its {what}: {}", meaning(&error)),
            }),
        }
        None
    }
}

/// Lets the process leave no core file.
///
/// # Errors
/// Returns the kernel's error.
pub(crate) fn without_core_files() -> io::Result<()> {
    // The parent reports a crash, so core files would only fill the disk. With a limit of one byte, the kernel does
    // not start a program for core files either; with a limit of zero it does (core(5)). PR_SET_DUMPABLE is
    // not an alternative: it would hide from an ordinary user the processes that the library forks, which
    // must be ended.
    setrlimit(Resource::RLIMIT_CORE, 1, 1).or_else(|_| setrlimit(Resource::RLIMIT_CORE, 0, 0))?;
    Ok(())
}

/// Whether another process may still read what is written to `pipe` (poll(2), `POLLERR`).
fn has_reader(pipe: impl AsFd) -> io::Result<bool> {
    let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::empty())];
    poll(&mut fds, PollTimeout::ZERO)?;
    let events = fds[0].revents().unwrap_or(PollFlags::empty());
    Ok(!events.contains(PollFlags::POLLERR))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_gone_reads_no_more() {
        let (reader, writer) = io::pipe().unwrap();
        assert!(has_reader(&writer).unwrap());
        drop(reader);
        assert!(!has_reader(&writer).unwrap());
    }
}
