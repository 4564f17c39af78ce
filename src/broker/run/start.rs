//! A process that waits until it may become a program.
//!
//! A program must not run before its process holds the share, and the ledger needs the process for that. So this
//! program starts itself with [`CHILD_ARGUMENT`], and that process waits for the variables of the share on a pipe. It
//! keeps its number when it becomes the program. If the pipe is closed before all of them came, because its parent
//! ended in any way, it ends.
//!
//! The program is the caller's own, as if a shell had started it: it keeps the terminal, the session, the descriptors
//! and the limits of the caller, and is not executed by [`tranche_core::execute`].

use crate::sys::descriptor;
use rustix::io::{FdFlags, fcntl_setfd};
use std::ffi::OsString;
use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use tranche_core::error::{Context, Error};

/// The argument by which a process knows that it is to wait. The number of a descriptor and a command line follow.
const CHILD_ARGUMENT: &str = "--run-child";

/// A process that waits. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct WaitingProgram {
    child: Child,
    /// Taken when the process may go on.
    pipe: Option<PipeWriter>,
}

impl WaitingProgram {
    /// Starts a process that will be the program `command`, with this environment and with the variables of the share.
    ///
    /// # Errors
    /// Returns an error if no process can be started.
    pub(super) fn start(command: &[OsString], environment: Vec<(OsString, OsString)>) -> Result<Self, Error> {
        let own = std::env::current_exe().about("tranche", "does not find its own file")?;
        let (reader, writer) = std::io::pipe().about("pipe", "cannot be made")?;
        fcntl_setfd(&reader, FdFlags::empty()).about("pipe", "cannot be passed on")?;
        let child = Command::new(own)
            .arg(CHILD_ARGUMENT)
            .arg(reader.as_raw_fd().to_string())
            .args(command)
            .env_clear()
            .envs(environment)
            .spawn()
            .about("process", "cannot be started")?;
        Ok(Self {
            child,
            pipe: Some(writer),
        })
    }

    /// The number of the process.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the process become the program, with these variables of the share.
    ///
    /// # Errors
    /// Returns an error if the process has ended.
    pub(super) fn release(&mut self, of_share: &[(String, String)]) -> Result<&mut Child, Error> {
        if let Some(mut pipe) = self.pipe.take() {
            pipe.write_all(&encode(of_share))
                .about("process", "has ended before the program began")?;
        }
        Ok(&mut self.child)
    }
}

impl Drop for WaitingProgram {
    fn drop(&mut self) {
        if self.pipe.take().is_some() {
            // It reads the end of the pipe, and ends. Nothing can be done about one that cannot be waited for.
            let _ = self.child.wait();
        }
    }
}

/// Why a process that waited did not become its program.
#[derive(Debug)]
pub struct NotStarted {
    /// What is wrong with the program; `None` if the parent ended first, which printed why if it could.
    pub error: Option<Error>,
    /// The exit code, as shells have it (POSIX, "Shell Command Language", 2.8.2).
    pub code: u8,
}

/// Runs as a process that waits, if the program was started as one. Its caller does nothing before this in `main`, and
/// ends with what is returned.
pub fn run_if_asked() -> Option<NotStarted> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != CHILD_ARGUMENT {
        return None;
    }
    let pipe = arguments.next().and_then(|number| number.to_str()?.parse().ok());
    let mut pipe = PipeReader::from(descriptor::inherited(pipe?).ok()?);
    let program = arguments.next()?;
    let mut text = Vec::new();
    let read = pipe.read_to_end(&mut text);
    let Some(of_share) = read.ok().and_then(|_| decode(&text)) else {
        return Some(NotStarted { error: None, code: 1 });
    };
    let error = Command::new(&program).args(arguments).envs(of_share).exec();
    let code = if error.kind() == ErrorKind::NotFound { 127 } else { 126 };
    let error = Error::failed(program.display(), "cannot be started").from_source(error);
    Some(NotStarted {
        error: Some(error),
        code,
    })
}

/// Variables as they are sent: each with a NUL at its end, and one more NUL after the last.
fn encode(variables: &[(String, String)]) -> Vec<u8> {
    let mut text: Vec<u8> = variables
        .iter()
        .flat_map(|(name, value)| format!("{name}={value}\0").into_bytes())
        .collect();
    text.push(0);
    text
}

/// The variables that were sent; `None` if their end is missing.
fn decode(text: &[u8]) -> Option<Vec<(&str, &str)>> {
    let text = std::str::from_utf8(text.strip_suffix(b"\0")?).ok()?;
    let is_whole = text.is_empty() || text.ends_with('\0');
    is_whole.then_some(())?;
    text.split_terminator('\0').map(|one| one.split_once('=')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_taken_as_a_whole_or_not_at_all() {
        let variables = [("A", "1=2"), ("B", "")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        let text = encode(&variables);
        assert_eq!(decode(&text).unwrap(), [("A", "1=2"), ("B", "")]);
        assert_eq!(decode(&encode(&[])).unwrap(), []);
        for end in 0..text.len() {
            assert_eq!(decode(&text[..end]), None, "{end}");
        }
    }
}
