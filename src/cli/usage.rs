//! What clap says of wrong arguments, in one line like every other error.

use clap::Command;
use clap::error::{ContextKind, ContextValue};
use std::ffi::OsString;
use tranche_core::error::{Error, Kind};
use tranche_core::text::candidates;

/// One line for `error`, which `arguments` of the program `root` caused.
pub(super) fn in_one_line(root: &Command, error: &clap::Error, arguments: &[OsString]) -> Error {
    let unknown = match error.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    let (path, command) = command_of(root, arguments, unknown);
    let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let verbs: Vec<&str> = shown.map(Command::get_name).collect();
    let verbs = candidates(unknown.unwrap_or_default(), &verbs);
    let what = match error.kind() {
        clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            format!("a command is missing; expected one of {verbs}")
        }
        clap::error::ErrorKind::InvalidSubcommand => {
            format!("{}; expected one of {verbs}", condensed(&error.to_string()))
        }
        _ => condensed(&error.to_string()),
    };
    // The line itself begins with the program's name.
    let program = root.get_name();
    let object = path.strip_prefix(program).map(str::trim_start);
    let object = object.filter(|verbs| !verbs.is_empty()).unwrap_or("command line");
    Error::new(Kind::Usage, object, what).hint(format!("see {path} --help"))
}

/// The verb that was typed, with the words that lead to it, as far as they exist. `unknown` is the word that is not a
/// verb: those behind it lead nowhere.
fn command_of<'a>(root: &'a Command, arguments: &[OsString], unknown: Option<&str>) -> (String, &'a Command) {
    let (mut path, mut command) = (root.get_name().to_owned(), root);
    let words = arguments.iter().skip(1).filter_map(|word| word.to_str());
    for word in words.take_while(|word| Some(*word) != unknown) {
        if let Some(verb) = command.find_subcommand(word) {
            path = format!("{path} {}", verb.get_name());
            command = verb;
        }
    }
    (path, command)
}

/// What is wrong, without clap's usage and its pointer to the help: the first paragraph, and its tips.
fn condensed(text: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with("Usage:") || line.starts_with("For more information") {
            continue;
        }
        let line = line.strip_prefix("error: ").unwrap_or(line);
        // A line that ends in a colon is followed by what it speaks of.
        match parts.last_mut() {
            Some(before) if before.ends_with(':') => *before = format!("{before} {line}"),
            _ => parts.push(line.to_owned()),
        }
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arguments;
    use clap::CommandFactory;

    fn said(words: &[&str]) -> String {
        let arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
        let error = Arguments::command().try_get_matches_from(&arguments).unwrap_err();
        in_one_line(&Arguments::command(), &error, &arguments).to_string()
    }

    #[test]
    fn each_kind_of_wrong_arguments_is_one_line_with_its_verb() {
        for (words, wanted) in [
            (
                &["tranche", "list", "--jason"][..],
                "list: unexpected argument '--jason' found; tip: a similar argument exists: '--json'; \
                 see tranche list --help",
            ),
            (
                &["tranche", "cdi", "inspect"],
                "cdi inspect: the following required arguments were not provided: <NAME>...; \
                 see tranche cdi inspect --help",
            ),
            (
                &["tranche", "cdi"],
                "cdi: a command is missing; expected one of generate, refresh, watch, list, validate, inspect, transform; \
                 see tranche cdi --help",
            ),
            (
                &["tranche", "cdi", "generate", "--mode", "x"],
                "cdi generate: invalid value 'x' for '--mode <MODE>': mode \"x\": unknown; expected one of auto, nvml, \
                 management, gds, mofed, gdrcopy, nvswitch, imex; see tranche cdi generate --help",
            ),
            (
                &["tranche", "cdi", "frob"],
                "cdi: unrecognized subcommand 'frob'; expected one of generate, refresh, watch, list, validate, inspect, transform; \
                 see tranche cdi --help",
            ),
        ] {
            assert_eq!(said(words), wanted);
        }
        let missing = said(&["tranche"]);
        assert!(
            missing.starts_with("command line: a command is missing; expected one of list, ")
                && missing.ends_with(" more; see tranche --help")
                && missing.len() < 150,
            "{missing}"
        );
        // The word that follows is a verb, but not of the one that does not exist.
        for words in [
            &["tranche", "frob"][..],
            &["tranche", "frob", "plan"],
            &["tranche", "frob", "mps", "run"],
        ] {
            let unknown = said(words);
            assert!(
                unknown.starts_with("command line: unrecognized subcommand 'frob'; expected one of list, ")
                    && unknown.ends_with("; see tranche --help"),
                "{unknown}"
            );
        }
        let unknown = said(&["tranche", "mps", "frob"]);
        assert!(!unknown.contains("run"), "a hidden verb: {unknown}");
        // What was typed may come from a script that took it from an image.
        assert_eq!(
            said(&["tranche", "list", "--\u{1b}[31m\u{202e}"])
                .matches(['\u{1b}', '\u{202e}'])
                .count(),
            0
        );
    }
}
