//! The options of a hook: every one has a value, and what we do not know is told and passed over.

use std::ffi::OsString;

use lexopt::Arg;

use super::report::Report;
use crate::error::{Error, Result};

/// Gives each of the `known` options (without their dashes) with its value, in the order of the arguments; `--option
/// VALUE` and `--option=VALUE` are the same. Anything else is a line in `report`: a spec may be newer than we are.
///
/// # Errors
/// [`crate::error::Kind::Usage`] for a known option without a value.
pub(super) fn parse(
    arguments: Vec<OsString>,
    known: &[&'static str],
    report: &mut Report<'_>,
) -> Result<Vec<(&'static str, OsString)>> {
    let mut options = Vec::new();
    let mut parser = lexopt::Parser::from_args(arguments);
    // After an option that we do not know, a bare word is taken for its value.
    let mut ignoring = false;
    while let Some(argument) = parser.next().map_err(|e| Error::usage("arguments", e))? {
        match argument {
            Arg::Long(name) => match known.iter().find(|known| **known == name) {
                Some(known) => {
                    ignoring = false;
                    let value = parser.value().map_err(|e| Error::usage(format!("--{known}"), e))?;
                    options.push((*known, value));
                }
                None => {
                    ignoring = true;
                    report.note(format!("--{name}"), "unknown option, ignored");
                    let _ = parser.optional_value();
                }
            },
            Arg::Short(letter) => {
                ignoring = true;
                report.note(format!("-{letter}"), "unknown option, ignored");
                let _ = parser.optional_value();
            }
            Arg::Value(_) if ignoring => {}
            Arg::Value(value) => report.note(value.to_string_lossy(), "unexpected argument, ignored"),
        }
    }
    Ok(options)
}
