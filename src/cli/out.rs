//! What goes to stdout and stderr, and the exit code.
//!
//! A result is complete in memory before it is written: a failure halfway leaves no half of a result behind. A reader
//! that closes the pipe (`| head`) is not an error.

use crate::window;
use anyhow::Result;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use tracing::level_filters::LevelFilter;
use tranche_core::claims;
use tranche_core::error::{Context, Error, Kind, line_for_user};
use tranche_core::text::{shown, shown_json, shown_lines};

/// Writes `text` for people to stdout. A terminal acts on nothing in it: only its line breaks stay as they are. Text
/// with names in it that may have line breaks has been through [`tranche_core::text::shown`] before.
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

/// `text` with each line that is wider than `columns` continued below, at a space and indented by at least `hanging`. A
/// word that is wider than a line stays whole.
pub fn fitted(text: &str, columns: usize, hanging: usize) -> String {
    let mut fitted = String::with_capacity(text.len());
    for line in text.lines() {
        let leading = line.len() - line.trim_start_matches(' ').len();
        let indent = leading.max(hanging).min(columns / 2);
        let mut rest = line;
        let mut begin = 0;
        while let Some(at) = break_of(rest, columns.saturating_sub(begin), leading.saturating_sub(begin)) {
            let (head, tail) = rest.split_at(at);
            fitted.push_str(&" ".repeat(begin));
            fitted.push_str(head.trim_end());
            fitted.push('\n');
            (rest, begin) = (tail.trim_start(), indent);
        }
        fitted.push_str(&" ".repeat(begin));
        fitted.push_str(rest);
        fitted.push('\n');
    }
    fitted
}

/// Where `line` is broken so that its head has at most `columns`: at the last space there, or else at the first one
/// behind. `None` if it fits, or has no space. The first `leading` bytes are an indent.
fn break_of(line: &str, columns: usize, leading: usize) -> Option<usize> {
    if line.chars().count() <= columns {
        return None;
    }
    let spaces = || line.match_indices(' ').map(|(at, _)| at).filter(|at| *at > leading);
    let columns_before = |at: &usize| line.get(..*at).map_or(0, |head| head.chars().count());
    let last = spaces().take_while(|at| columns_before(at) <= columns).last();
    last.or_else(|| spaces().next())
}

/// Writes text that was escaped before.
///
/// # Errors
/// As [`document`].
pub fn written(text: &str) -> Result<()> {
    write(text)
}

fn write(text: &str) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other.about("stdout", "cannot write")?),
    }
}

/// Whether stdout has a reader: the other end of a pipe may be closed (poll(2), `POLLERR`).
pub fn has_reader() -> bool {
    let stdout = io::stdout();
    let mut fds = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
    let looked = poll(&mut fds, PollTimeout::ZERO);
    let events = fds[0].revents().unwrap_or(PollFlags::empty());
    looked.is_err() || !events.intersects(PollFlags::POLLERR | PollFlags::POLLNVAL)
}

/// Writes `value` to stdout as JSON, for programs.
///
/// # Errors
/// As [`result`].
pub fn json(value: &impl Serialize) -> Result<()> {
    write(&json_text(value)?)
}

/// The text that [`json`] writes.
///
/// # Errors
/// Returns an error if the value cannot be written as JSON.
pub fn json_text(value: &impl Serialize) -> Result<String> {
    let mut text = serde_json::to_string_pretty(value).about("result", "cannot be written as JSON")?;
    text.push('\n');
    Ok(shown_json(&text).into_owned())
}

/// The text that a page has: `value` as JSON, or its text for people, at the width of the terminal if standard output
/// is one.
///
/// # Errors
/// As [`json_text`].
pub fn page_text(
    is_json: bool,
    value: &impl Serialize,
    hanging: usize,
    text: impl FnOnce() -> String,
) -> Result<String> {
    if is_json {
        return json_text(value);
    }
    let text = text();
    let text = shown_lines(&text);
    Ok(match window::width() {
        Some(columns) => fitted(&text, columns, hanging),
        None => text.into_owned(),
    })
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
    if LevelFilter::current() != LevelFilter::ERROR {
        say(line);
    }
}

/// Does `work`, and writes the lines to stderr that it has for people, also if it fails.
///
/// # Errors
/// Returns the error of `work`.
pub fn with_notes<T, E>(work: impl FnOnce(&mut Vec<String>) -> std::result::Result<T, E>) -> std::result::Result<T, E> {
    let mut notes = Vec::new();
    let done = work(&mut notes);
    notes.iter().for_each(note);
    done
}

/// Writes one line to stderr. A failure has no reader, because the line itself had none.
pub(super) fn say(line: impl std::fmt::Display) {
    let line = line.to_string();
    let _ = writeln!(io::stderr().lock(), "{}", shown(&line));
}

/// Prints what went wrong, in one line, and returns the exit code that says it to a program.
pub fn complain(error: anyhow::Error) -> ExitCode {
    say(format_args!(
        "tranche: {}",
        line_for_user(error.as_ref(), nix::unistd::geteuid().is_root())
    ));
    code(kind(&error))
}

/// Prints a line for each thing that went wrong, and returns the exit code of the last; success if nothing did.
pub fn complain_all<'a>(errors: impl IntoIterator<Item = &'a Error>) -> ExitCode {
    let (lines, code) = complaints(errors);
    lines.iter().for_each(say);
    code
}

/// The lines that [`complain_all`] prints, and the exit code.
pub fn complaints<'a>(errors: impl IntoIterator<Item = &'a Error>) -> (Vec<String>, ExitCode) {
    let is_root = nix::unistd::geteuid().is_root();
    let (mut lines, mut last) = (Vec::new(), ExitCode::SUCCESS);
    for error in errors {
        let line = format!("tranche: {}", line_for_user(error, is_root));
        lines.push(shown(&line).into_owned());
        last = code(error.kind());
    }
    (lines, last)
}

/// The kind of the first error in the chain that has one. The errors of other modules have one only if their cause has.
fn kind(error: &anyhow::Error) -> Kind {
    let kinds = error.chain().map(|error| match error.downcast_ref() {
        Some(refused) => Some(claims::kind_of(refused)),
        None => error.downcast_ref().map(Error::kind),
    });
    kinds.flatten().next().unwrap_or(Kind::Failed)
}

/// The exit code for `kind`.
pub fn code(kind: Kind) -> ExitCode {
    ExitCode::from(kind.exit_code())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tranche_core::error::line;
    use tranche_core::ledger::{LedgerError, Refused};

    #[test]
    fn the_exit_code_is_that_of_the_first_error_that_has_a_kind() {
        let error = anyhow::Error::from(Error::usage("gpu 7", "not found").hint("there is gpu 0"));
        assert_eq!(kind(&error), Kind::Usage);
        let error = error.context("--device 7");
        assert_eq!(kind(&error), Kind::Usage);
        assert_eq!(line(error.as_ref()), "--device 7: gpu 7: not found; there is gpu 0");
        let inner = Error::new(Kind::Nothing, "host", "no GPU");
        let error = anyhow::Error::from(Error::new(Kind::Found, "policy", "cannot be applied").from_source(inner));
        assert_eq!(kind(&error), Kind::Found);
        assert_eq!(kind(&anyhow::anyhow!("unknown")), Kind::Failed);
    }

    #[test]
    fn a_line_is_continued_at_a_space_and_indented() {
        assert_eq!(fitted("abc def ghi\n", 7, 2), "abc def\n  ghi\n");
        assert_eq!(fitted("  ab cd ef\n", 6, 0), "  ab\n  cd\n  ef\n");
        assert_eq!(fitted("abcdefghij kl", 5, 0), "abcdefghij\nkl\n");
        assert_eq!(fitted("a  b\n\nc", 80, 4), "a  b\n\nc\n");
        assert_eq!(fitted("äöü äöü", 3, 0), "äöü\näöü\n");
    }

    #[test]
    fn a_user_who_lacks_a_permission_is_told_who_has_it() {
        let denied = |hint: &str| {
            let denied = io::Error::from(io::ErrorKind::PermissionDenied);
            let error = Error::failed("/etc/cdi", "cannot make the directory").from_source(denied);
            if hint.is_empty() { error } else { error.hint(hint) }
        };
        let line = line_for_user(&denied(""), false);
        assert!(
            line.starts_with("/etc/cdi: cannot make the directory") && line.ends_with("; run this command as root"),
            "{line}"
        );
        assert!(!line_for_user(&denied(""), true).contains("as root"));
        assert!(!line_for_user(&denied("only root may"), false).contains("as root"));
        let errno = Error::failed("/run/x", "cannot be opened").from_source(nix::errno::Errno::EPERM);
        assert!(line_for_user(&errno, false).ends_with("as root"));
        let of_rustix = Error::failed("/run/tranche", "cannot be made").from_source(rustix::io::Errno::ACCESS);
        assert!(line_for_user(&of_rustix, false).ends_with("as root"));
        let wrapped = anyhow::Error::from(denied("")).context("refresh");
        assert!(line_for_user(wrapped.as_ref(), false).ends_with("as root"));
        let full = Error::failed("/etc/cdi", "cannot write").from_source(io::Error::other("disk full"));
        assert!(!line_for_user(&full, false).contains("as root"));
    }

    #[test]
    fn errors_of_the_ledger_have_the_kind_of_their_cause() {
        let taken = LedgerError::from(Refused::NameTaken("a".to_owned()));
        assert_eq!(kind(&taken.into()), Kind::Usage);
        let free = LedgerError::from(Refused::NoneFree);
        assert_eq!(kind(&free.into()), Kind::Failed);
        let failed = LedgerError::from(Error::usage("/run/x", "not a directory").hint("give another"));
        assert_eq!(line(&failed), "/run/x: not a directory; give another");
        assert_eq!(kind(&failed.into()), Kind::Usage);
    }
}
