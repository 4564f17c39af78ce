//! The plain error of the library: what was wrong with which object for a person, a kind for a program, and the cause.
//!
//! A message names the object, says what was wrong and, where we know, what to do:
//! `gpu 0: shares ask for 96 GiB of 80 GiB; lower one`.

use crate::text::{candidates, shown, some};
use std::error::Error as StdError;
use std::fmt;
use std::io;

/// How a command ended, for programs that depend on it: the exit code of both programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Something that should have worked did not.
    Failed,
    /// The request itself was wrong: arguments, a name that does not exist, a file that does not parse.
    Usage,
    /// There is nothing to do here: no driver, no GPU.
    Nothing,
    /// A check did its work and found something.
    Found,
}

impl Kind {
    /// The process's exit code for this kind (0 is success, so kinds begin at 1).
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::Nothing => 3,
            Kind::Found => 4,
        }
    }
}

/// What was wrong with an object, and what can be done about it. [`line()`] adds the causes.
#[derive(thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<Inner>);

#[derive(Debug, thiserror::Error)]
struct Inner {
    kind: Kind,
    object: String,
    what: String,
    hint: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// `Result` with this module's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind` about `object` (a path, a device, an argument): `what` was wrong with it.
    pub fn new(kind: Kind, object: impl fmt::Display, what: impl fmt::Display) -> Self {
        Error(Box::new(Inner {
            kind,
            object: object.to_string(),
            what: what.to_string(),
            hint: None,
            source: None,
        }))
    }

    /// [`Kind::Failed`] about `object`.
    pub fn failed(object: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self::new(Kind::Failed, object, what)
    }

    /// [`Kind::Usage`] about `object`.
    pub fn usage(object: impl fmt::Display, what: impl fmt::Display) -> Self {
        Self::new(Kind::Usage, object, what)
    }

    /// [`Kind::Usage`] about a word that is not one of `known`.
    pub fn unknown<T: AsRef<str>>(object: impl fmt::Display, asked: &str, known: &[T]) -> Self {
        Self::usage(object, "unknown").hint(format!("expected one of {}", candidates(asked, known)))
    }

    /// As [`Error::unknown`], with the first words in their order: hooks, which are small, know few.
    pub fn not_one_of(object: impl fmt::Display, known: &[&str]) -> Self {
        Self::usage(object, "unknown").hint(format!("expected one of {}", some(known)))
    }

    /// Adds what the reader can do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.0.hint = Some(hint.to_string());
        self
    }

    /// Adds to the hint, or makes it one.
    #[must_use]
    pub fn and_hint(mut self, more: impl fmt::Display) -> Self {
        self.0.hint = Some(match self.0.hint.take() {
            Some(hint) => format!("{hint}; {more}"),
            None => more.to_string(),
        });
        self
    }

    /// Adds the error that this one comes from. Its text follows in the [`line()`].
    #[must_use]
    pub fn from_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The class of the failure, which is the exit code.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The thing that the error is about.
    pub fn object(&self) -> &str {
        &self.0.object
    }
}

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, what, .. } = self;
        f.write_str(&shown(&format!("{object}: {what}")))?;
        self.hint.iter().try_for_each(|hint| write!(f, "; {}", shown(hint)))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.kind, line(self))
    }
}

/// The one line for people about `error`: what was wrong, its causes, and what can be done. Names in it may come from
/// an image, so a line break in one is escaped: it must not begin a line of its own in a log.
pub fn line(error: &(dyn StdError + 'static)) -> String {
    let (causes, hints) = causes_and_hints(error);
    let parts = std::iter::once(causes.join(": ")).chain(hints.into_iter().rev().map(str::to_owned));
    shown(&parts.collect::<Vec<_>>().join("; ")).into_owned()
}

/// [`line()`] for the person who started a command. If a user other than root lacks a permission, it ends with that
/// advice, unless it names root already.
pub fn line_for_user(error: &(dyn StdError + 'static), is_root: bool) -> String {
    let line = line(error);
    let lacks_permission = std::iter::successors(Some(error), |error| (*error).source()).any(|error| {
        let io = error.downcast_ref::<io::Error>().map(io::Error::kind);
        let errno = error.downcast_ref::<nix::errno::Errno>();
        let errno = errno.map(|errno| io::Error::from(*errno).kind());
        let of_rustix = error.downcast_ref::<rustix::io::Errno>().map(|errno| errno.kind());
        io.or(errno).or(of_rustix) == Some(io::ErrorKind::PermissionDenied)
    });
    match lacks_permission && !is_root && !line.contains("root") {
        true => format!("{line}; run this command as root"),
        false => line,
    }
}

/// The parts of [`line()`], not escaped: the object, what was wrong with it and why, and what can be done.
pub fn parts(error: &Error) -> (&str, String, Option<String>) {
    let (mut causes, hints) = causes_and_hints(error);
    let object = error.object();
    if let Some(first) = causes.first_mut()
        && let Some(what) = first.strip_prefix(object).and_then(|rest| rest.strip_prefix(": "))
    {
        *first = what.to_owned();
    }
    let hints: Vec<&str> = hints.into_iter().rev().collect();
    (object, causes.join(": "), (!hints.is_empty()).then(|| hints.join("; ")))
}

/// What went wrong and why, each with its object, and the hints, the innermost last.
fn causes_and_hints<'e>(error: &'e (dyn StdError + 'static)) -> (Vec<String>, Vec<&'e str>) {
    let mut texts: Vec<String> = Vec::new();
    let mut hints: Vec<&str> = Vec::new();
    let mut before = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = error.to_string();
        // An error that only passes another one on has the same text: it is printed once.
        if text == before {
            texts.pop();
        }
        texts.push(match error.downcast_ref::<Error>() {
            Some(Error(inner)) => {
                hints.extend(inner.hint.as_deref());
                format!("{}: {}", inner.object, inner.what)
            }
            None => text.clone(),
        });
        before = text;
        next = error.source();
    }
    (texts, hints)
}

/// Adds an object and what was being done to an error of another library.
pub trait Context<T> {
    /// Turns a failure into [`Kind::Failed`] about `object`, doing `what` (`"cannot read"`).
    fn about(self, object: impl fmt::Display, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: Into<Box<dyn StdError + Send + Sync>>> Context<T> for std::result::Result<T, E> {
    fn about(self, object: impl fmt::Display, what: impl fmt::Display) -> Result<T> {
        self.map_err(|e| Error::failed(object, what).from_source(e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_with_cause_and_hint() {
        let e = Error::usage("gpu 7", "no such GPU")
            .from_source(io::Error::other("gone"))
            .hint("there are 0 to 3");
        assert_eq!(line(&e), "gpu 7: no such GPU: gone; there are 0 to 3");
        assert_eq!(e.to_string(), "gpu 7: no such GPU; there are 0 to 3");
        assert_eq!(e.source().map(ToString::to_string).as_deref(), Some("gone"));
        assert_eq!(e.kind().exit_code(), 2);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct PassedOn(#[source] Error);

    #[test]
    fn an_error_that_passes_another_on_is_printed_once() {
        let inner = Error::failed("/ledger", "cannot be read")
            .from_source(io::Error::other("gone"))
            .hint("look at the disk");
        let passed = PassedOn(inner);
        assert_eq!(line(&passed), "/ledger: cannot be read: gone; look at the disk");
        let outer = Error::usage("claim a", "not made")
            .from_source(passed)
            .hint("try again");
        assert_eq!(
            line(&outer),
            "claim a: not made: /ledger: cannot be read: gone; look at the disk; try again"
        );
    }

    #[test]
    fn a_name_with_a_line_break_stays_in_its_line() {
        let e = Error::failed("/a\nERROR fake", "x\u{1b}[31m").hint("\u{202e}esrever");
        assert_eq!(line(&e), e.to_string());
        assert_eq!(e.to_string(), "/a\\nERROR fake: x\\u{1b}[31m; \\u{202e}esrever");
    }
}
