//! How the options of every call are read.

use crate::error::{Error, Result};
use crate::types::{HostPath, STATE_DIR};
use lexopt::Arg;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What the value of an option is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueKind {
    /// The option has no value.
    Flag,
    /// Text without a path in it.
    Text,
    /// A path of the host.
    Host,
    /// A path of the container, or several and other text with the mark `::` between them.
    Container,
    /// A device node or a socket: its path in the container, and behind a colon its path on the host where that
    /// differs.
    Bound,
}

/// An argument that a call does not know. A specification may be newer than the program that it calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unknown {
    /// An option, with its dashes.
    Option(String),
    /// An option that is known, with a value that is not.
    Value(String),
    /// A word that is not the value of an option.
    Word(String),
}

impl Unknown {
    /// The argument.
    pub fn argument(&self) -> &str {
        let (Self::Option(argument) | Self::Value(argument) | Self::Word(argument)) = self;
        argument
    }
}

impl fmt::Display for Unknown {
    /// What is wrong with it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Option(_) => "unknown option",
            Self::Value(_) => "unknown",
            Self::Word(_) => "unexpected argument",
        })
    }
}

/// What a caller does about an unknown argument: an error refuses the whole call.
pub(super) type OnUnknown<'a> = &'a mut dyn FnMut(Unknown) -> Result<()>;

/// Gives each of the `known` options (without its dashes) with its value to `take`, in the order of the arguments.
/// `--option VALUE` and `--option=VALUE` are the same.
///
/// # Errors
/// Returns a usage error for a known option without a value or with one that is not UTF-8, and the errors of `take` and
/// `unknown`.
pub(super) fn read(
    arguments: Vec<OsString>,
    known: &[(&'static str, ValueKind)],
    unknown: OnUnknown<'_>,
    mut take: impl FnMut(&'static str, String, OnUnknown<'_>) -> Result<()>,
) -> Result<()> {
    let mut parser = lexopt::Parser::from_args(arguments);
    // A word after an unknown option is taken for its value.
    let mut ignoring = false;
    while let Some(argument) = parser.next().map_err(|e| Error::usage("arguments", e))? {
        let name = match argument {
            Arg::Long(name) => match known.iter().find(|(known, _)| *known == name) {
                Some((name, value)) => {
                    ignoring = false;
                    let value = match value {
                        ValueKind::Flag => String::new(),
                        _ => text(name, parser.value().map_err(|e| Error::usage(format!("--{name}"), e))?)?,
                    };
                    take(name, value, unknown)?;
                    continue;
                }
                None => format!("--{name}"),
            },
            Arg::Short(letter) => format!("-{letter}"),
            Arg::Value(_) if ignoring => continue,
            Arg::Value(word) => {
                unknown(Unknown::Word(word.to_string_lossy().into_owned()))?;
                continue;
            }
        };
        ignoring = true;
        unknown(Unknown::Option(name))?;
        let _ = parser.optional_value();
    }
    Ok(())
}

fn text(option: &str, value: OsString) -> Result<String> {
    value
        .into_string()
        .map_err(|value| wrong(option, &value.to_string_lossy(), "is not valid UTF-8"))
}

/// A usage error about the value of an option.
pub(super) fn wrong(option: &str, value: &str, what: impl fmt::Display) -> Error {
    Error::usage(format!("--{option} {value}"), what)
}

/// The text before and after the first mark `::`. A start parses hundreds of values, and `str::split_once` prepares for
/// long texts.
pub(super) fn cut(text: &str) -> Option<(&str, &str)> {
    let at = text.as_bytes().windows(2).position(|two| two == b"::")?;
    Some((text.get(..at)?, text.get(at + 2..)?))
}

/// An option for each of `values`, with the value in an argument of its own, as NVIDIA's generator writes most options.
pub(super) fn each<T: fmt::Display>(option: &str, values: impl IntoIterator<Item = T>) -> impl Iterator<Item = String> {
    let pairs = values
        .into_iter()
        .map(move |value| [format!("--{option}"), value.to_string()]);
    pairs.flatten()
}

/// The value of an option as a path of the host.
pub(super) fn host_path(option: &str, value: &str) -> Result<HostPath> {
    HostPath::new(value).map_err(|_| wrong(option, value, "is not an absolute path"))
}

/// The default of `--state-dir`.
pub(super) fn default_state_dir() -> HostPath {
    HostPath::root().join(STATE_DIR)
}

/// Adds `--state-dir` if it is not the default. Each engine parses all hooks of all devices at each start of a
/// container, so that what says nothing is left out.
pub(super) fn push_state_dir(options: &mut Vec<String>, state_dir: &HostPath) {
    if state_dir.as_str() != STATE_DIR {
        options.push(format!("--state-dir={state_dir}"));
    }
}

/// The directory that `--state-dir` names among the arguments of a hook, whatever else is wrong with them.
pub fn state_dir(arguments: &[OsString]) -> PathBuf {
    const OPTION: &[u8] = b"--state-dir";
    let value = |(at, argument): (usize, &OsString)| {
        let rest = argument.as_bytes().strip_prefix(OPTION)?;
        match rest.strip_prefix(b"=") {
            Some(value) => Some(PathBuf::from(OsStr::from_bytes(value))),
            None if rest.is_empty() => arguments.get(at + 1).map(PathBuf::from),
            None => None,
        }
    };
    let named = arguments.iter().enumerate().filter_map(value).next_back();
    named.unwrap_or_else(|| PathBuf::from(STATE_DIR))
}
