//! The guard, as the process that measures sees it.

use crate::guard::READY;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Stdio};
use tranche_core::error::{Context, Error, Result};
use tranche_core::execute::Program;

/// The guard of a run. Everything is put back when it is dropped.
#[derive(Debug)]
pub struct Guarded {
    child: Child,
    input: Option<ChildStdin>,
}

impl Guarded {
    /// Starts this program again with `words`, as the guard, and waits until it holds the device. Its errors are on
    /// standard error; then `None` is returned.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub fn start(words: &[OsString]) -> Result<Option<Self>> {
        let own = std::env::current_exe().about("tranche", "its own path is unknown")?;
        let mut program = Program::new(own);
        program.args(words).environment_of_caller();
        program
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        let mut child = program.spawn().about("guard", "cannot be started")?;
        let output = child.stdout.take().map(BufReader::new);
        let guarded = Self {
            input: child.stdin.take(),
            child,
        };
        let mut line = String::new();
        if let Some(mut output) = output {
            output.read_line(&mut line).about("guard", "does not answer")?;
        }
        if line.trim_end() == READY {
            return Ok(Some(guarded));
        }
        drop(guarded);
        Ok(None)
    }

    /// Has everything put back.
    ///
    /// # Errors
    /// Returns an error if something was not. The guard has said what.
    pub fn end(&mut self) -> Result<()> {
        drop(self.input.take());
        let status = self.child.wait().about("guard", "cannot be waited for")?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::failed("tranche bench", "what it changed could not be put back")
                .hint("tranche bench restore tries it again")),
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // It has said on standard error what is wrong.
        let _ = self.end();
    }
}
