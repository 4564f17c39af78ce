//! What goes to stdout and stderr, and the exit code.
//!
//! A result is complete in memory before it is written: a failure halfway leaves no half of a result behind. A reader
//! that closes the pipe (`| head`) is not an error.

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
fn say(line: impl std::fmt::Display) {
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
    let is_root = nix::unistd::geteuid().is_root();
    errors.into_iter().fold(ExitCode::SUCCESS, |_, error| {
        say(format_args!("tranche: {}", line_for_user(error, is_root)));
        code(error.kind())
    })
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
