//! Every reason for which a start is refused, and every warning of a command, is listed with the finding of doctor that
//! reports it, or with what it depends on. The reasons are taken from the source, so a new one fails this test until it
//! is listed.

use crate::troubleshooting::{blanked, in_quotes};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use tranche_inspect::doctor::Finding;
use walkdir::WalkDir;

/// A line each: the finding or one of [`CLASSES`], and the message.
const LIST: &str = include_str!("../../data/reasons.txt");

/// What a reason may depend on, so that doctor cannot report it.
const CLASSES: [(&str, &str); 7] = [
    ("request", "what the container or the command asks for"),
    ("holder", "what others hold, or wait for"),
    ("container", "the container that starts, and the files of its engine"),
    (
        "moment",
        "an error of the kernel or a disk, or a race, which the next start may not have",
    ),
    ("user", "who runs the command"),
    ("place", "a container in which the program itself runs"),
    ("unseen", "a program whose behaviour shows only when it is executed"),
];

/// Where a start is refused: the hook that claims, the runtime, and what both use. Every error there counts. In other
/// directories of the runtime (`inject`, `call`, `oci`, `root`) and of the hook, errors are about the request or the
/// container; those of `policy` and `share` are results of doctor as a whole, and so are the warnings of `host`.
const STARTS: [&str; 14] = [
    "hook/claim",
    "hook/claim.rs",
    "hook/lib.rs",
    "inject/runtime",
    "inject/runtime.rs",
    "core/claims",
    "core/mps",
    "core/ledger",
    "core/root/state.rs",
    "core/broker",
    "protocol/lib.rs",
    "plan/reserve",
    "plan/reserve.rs",
    "plan/host_file",
];

/// Where commands warn: the command line, and what it calls to examine a host, to plan and to write specifications.
const WARNINGS: [&str; 7] = [
    "cli",
    "host/examine.rs",
    "specs/generate",
    "specs/generate.rs",
    "state/held",
    "state/planning.rs",
    "specs/refresh",
];

/// What begins an error, and the names of variables in which its text is put together.
const ERRORS: [&str; 7] = [
    "Error::failed(",
    "Error::usage(",
    "Error::new(",
    ".about(",
    ".not_valid(",
    "#[error(",
    "warn!(",
];
const TEXTS: [&str; 4] = ["what", "why", "text", "wrong"];

/// The messages in `text`, which is Rust: the literals of two words or more in an error, or only those of warnings.
fn messages(text: &str, only_warnings: bool) -> BTreeSet<String> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let text = lines.collect::<Vec<_>>().join("\n").replace("'\"'", "");
    let mut bodies = Vec::new();
    for start in ERRORS.iter().filter(|start| !only_warnings || **start == "warn!(") {
        bodies.extend(
            text.match_indices(start)
                .map(|(at, start)| body(&text[at + start.len()..], false)),
        );
    }
    for name in TEXTS.iter().filter(|_| !only_warnings) {
        for begin in [
            format!("let {name} ="),
            format!("let mut {name} ="),
            format!("let ({name},"),
        ] {
            bodies.extend(
                text.match_indices(&begin)
                    .map(|(at, begin)| body(&text[at + begin.len()..], true)),
            );
        }
    }
    let literals = bodies.into_iter().flat_map(in_quotes).map(|literal| blanked(&literal));
    literals.filter(|literal| words(literal) >= 2).collect()
}

fn words(text: &str) -> usize {
    let is_word = |word: &&str| word.chars().any(|c| c.is_ascii_alphabetic());
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| word.len() > 1)
        .filter(is_word)
        .count()
}

/// The text until the bracket that closes it, or until a semicolon for a statement.
fn body(text: &str, is_statement: bool) -> &str {
    let (mut depth, mut is_quoted, mut is_escaped) = (1, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if std::mem::take(&mut is_escaped) => {}
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            ';' if is_statement && depth == 1 => return &text[..at],
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
    }
    text
}

/// The messages of the source, each with a file that has it.
fn in_source() -> BTreeMap<String, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeMap::new();
    for part in STARTS.iter().chain(&WARNINGS) {
        let files = WalkDir::new(source.join(part))
            .into_iter()
            .map(|entry| entry.unwrap().into_path());
        let is_code = |path: &std::path::PathBuf| {
            path.extension().is_some_and(|e| e == "rs")
                && !path
                    .components()
                    .any(|c| c.as_os_str().to_string_lossy().starts_with("tests"))
        };
        // The path of the checkout may have a directory `tests`.
        for path in files.filter(|path| is_code(&path.strip_prefix(&source).unwrap().to_owned())) {
            let shown = path.strip_prefix(&source).unwrap().display().to_string();
            for message in messages(&fs::read_to_string(&path).unwrap(), WARNINGS.contains(part)) {
                found.entry(message).or_insert_with(|| shown.clone());
            }
        }
    }
    found
}

#[test]
fn each_refusal_and_each_warning_is_listed_with_what_reports_it() {
    let listed: BTreeMap<&str, &str> = LIST
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once(": ").unwrap())
        .map(|(class, message)| (message, class))
        .collect();
    let found = in_source();
    assert!(found.len() > 100, "{found:?}");
    let unlisted = found
        .iter()
        .filter(|(message, _)| !listed.contains_key(message.as_str()));
    let unlisted: Vec<String> = unlisted
        .map(|(message, file)| format!("FINDING: {message}  ({file})"))
        .collect();
    let gone = listed.keys().filter(|message| !found.contains_key(**message));
    let gone: Vec<&&str> = gone.collect();
    assert!(
        unlisted.is_empty() && gone.is_empty(),
        "tests/data/reasons.txt lists each reason with the finding of doctor that reports it, or with one of {:?}.\n\
         not listed:\n{}\nnot in the source any more:\n{gone:#?}",
        CLASSES.map(|(class, _)| class),
        unlisted.join("\n")
    );
    for (message, class) in &listed {
        let is_finding = Finding::ALL.iter().any(|finding| finding.as_str() == *class);
        let is_class = CLASSES.iter().any(|(known, _)| known == class);
        assert!(is_finding || is_class, "{class}: {message}");
    }
}

#[test]
fn reasons_are_found_where_they_are_written() {
    let text = "fn a() {\n    Error::failed(&x, \"is not here\").hint(\"do this now\");\n    let what = format!(\"has {} and {b}\");\n\
                // Error::failed(a, \"in a comment\")\n    tracing::warn!(\"{a}: is old; {b}\");\n}\n";
    let all: Vec<String> = messages(text, false).into_iter().collect();
    assert_eq!(all, ["has … and …", "is not here", "…: is old; …"]);
    let warnings: Vec<String> = messages(text, true).into_iter().collect();
    assert_eq!(warnings, ["…: is old; …"]);
}
