//! What goes to stdout and stderr, and the exit code.
//!
//! Results are made whole in memory and written at once: a reader that goes away (`| head`) ends the program quietly,
//! and a failure halfway leaves no half of a result behind.

use crate::error::{Context, Error, Kind, Result};
use crate::text::{shown, shown_json, shown_lines};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

/// Writes `text` for people to stdout. A terminal acts on nothing in it: only its line breaks stay as they are. Text with
/// names in it that may have line breaks has been through [`crate::text::shown`] before.
///
/// # Errors
/// As [`document`].
pub fn result(text: &str) -> Result<()> {
    write(&shown_lines(text))
}

/// Writes a file's contents to stdout: byte for byte, so that it can be redirected; on a terminal as [`result`] does.
///
/// # Errors
/// Any failure but a closed pipe: a full disk must not look like success.
pub fn document(text: &str) -> Result<()> {
    match io::stdout().is_terminal() {
        true => result(text),
        false => write(text),
    }
}

fn write(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.about("stdout", "cannot write"),
    }
}

/// Writes `value` to stdout as JSON, for programs.
///
/// # Errors
/// As [`result`].
pub fn json(value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value).about("result", "cannot be written as JSON")?;
    text.push('\n');
    write(&shown_json(&text))
}

/// Writes one line to stderr, for people, unless they asked for errors alone.
pub fn note(line: impl std::fmt::Display) {
    if !super::log::is_quiet() {
        say(line);
    }
}

/// Writes one line to stderr. If that fails, nobody is there who could be told.
fn say(line: impl std::fmt::Display) {
    let line = line.to_string();
    let _ = writeln!(io::stderr().lock(), "{}", shown(&line));
}

/// Says what went wrong, in one line, and gives the exit code that tells it to a program.
pub fn complain(error: &Error) -> ExitCode {
    say(format_args!("tranche: {error}"));
    code(error.kind())
}

/// Says each thing that went wrong, in a line of its own, and gives the exit code of the last; success where nothing did.
pub fn complain_all(errors: &[Error]) -> ExitCode {
    errors.iter().fold(ExitCode::SUCCESS, |_, error| complain(error))
}

/// The exit code for `kind`.
pub fn code(kind: Kind) -> ExitCode {
    ExitCode::from(kind.exit_code())
}
