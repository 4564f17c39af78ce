//! What goes to stdout and stderr, and the exit code.
//!
//! Results are made whole in memory and written at once: a reader that goes away (`| head`) ends the program quietly,
//! and a failure halfway leaves no half of a result behind.

use crate::error::{Context, Error, Kind, line};
use crate::ledger::LedgerError;
use crate::text::{shown, shown_json, shown_lines};
use anyhow::Result;
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
        other => Ok(other.about("stdout", "cannot write")?),
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

/// Writes a result to stdout: `value` as JSON, or its text for people.
///
/// # Errors
/// As [`document`].
pub fn either(is_json: bool, value: &impl Serialize, text: impl FnOnce() -> String) -> Result<()> {
    match is_json {
        true => json(value),
        false => result(&text()),
    }
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

/// Prints what went wrong, in one line, and returns the exit code that says it to a program.
pub fn complain(error: anyhow::Error) -> ExitCode {
    let error = explained(error);
    say(format_args!("tranche: {}", line(error.as_ref())));
    code(kind(&error))
}

/// Prints a line for each thing that went wrong, and returns the exit code of the last; success if nothing did.
pub fn complain_all<'a>(errors: impl IntoIterator<Item = &'a Error>) -> ExitCode {
    errors.into_iter().fold(ExitCode::SUCCESS, |_, error| {
        say(format_args!("tranche: {}", line(error)));
        code(error.kind())
    })
}

/// `error` with the text and the kind that it has for people, if it is one of the library that has neither.
fn explained(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<LedgerError>() {
        Ok(error) => Error::from(error).into(),
        Err(other) => other,
    }
}

/// The kind of the first error in the chain that has one.
fn kind(error: &anyhow::Error) -> Kind {
    let mut kinds = error.chain().filter_map(|error| error.downcast_ref().map(Error::kind));
    kinds.next().unwrap_or(Kind::Failed)
}

/// The exit code for `kind`.
pub fn code(kind: Kind) -> ExitCode {
    ExitCode::from(kind.exit_code())
}
