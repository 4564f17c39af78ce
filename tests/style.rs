//! The parts of docs/style.md that a program can check.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by a panic"
)]

use std::fs;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

/// What rustfmt.toml allows a line of code. The formatter does not wrap comments.
const WIDTH: usize = 120;

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files below `directories` with one of these extensions, and their texts.
fn texts(directories: &[&str], extensions: &[&str]) -> Vec<(PathBuf, String)> {
    let entries = directories.iter().flat_map(|one| WalkDir::new(top().join(one)));
    let files = entries.map(|entry| entry.unwrap().into_path());
    let files = files.filter(|path| path.extension().is_some_and(|e| extensions.iter().any(|one| e == *one)));
    files
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect()
}

/// The words in code quotes of the first column of the table under `never`.
fn refused_words(style: &str) -> Vec<String> {
    let rows = style.lines().skip_while(|line| !line.starts_with("| never |")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.split('|').nth(1).unwrap());
    cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

/// Whether `line` has `words`, in small or large letters, as whole words. Text in code quotes counts too.
fn has(line: &str, words: &str) -> bool {
    let line = line.to_lowercase();
    let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(words).any(|(at, _)| {
        !is_letter(line[..at].chars().next_back()) && !is_letter(line[at + words.len()..].chars().next())
    })
}

#[test]
fn the_words_that_the_style_refuses_are_not_used() {
    let style = top().join("docs/style.md");
    let refused = refused_words(&fs::read_to_string(&style).unwrap());
    assert!(refused.len() > 12, "{refused:?}");
    let mut files = texts(&["src", "docs", "README.md"], &["rs", "md"]);
    files.extend(texts(
        &["packaging/man", "packaging/kubelet/man"],
        &["1", "5", "7", "8"],
    ));
    assert!(files.len() > 400, "{}", files.len());
    let mut found = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| *path != style) {
        for (at, line) in text.lines().enumerate() {
            let words = refused.iter().filter(|words| has(line, words));
            found.extend(words.map(|words| format!("{}:{}: {words}", path.display(), at + 1)));
        }
    }
    assert!(
        found.is_empty(),
        "docs/style.md has other words for these:\n{}",
        found.join("\n")
    );
}

#[test]
fn a_line_of_a_comment_is_no_longer_than_one_of_code() {
    let mut long = Vec::new();
    for (path, text) in texts(
        &["src", "tests", "examples", "benches", "packaging", "verify/src"],
        &["rs"],
    ) {
        for (at, line) in text.lines().enumerate() {
            // A table, a picture and an address cannot be wrapped.
            let is_whole = line.contains("//! |") || line.contains("──▶") || line.contains("https://");
            if line.trim_start().starts_with("//") && line.chars().count() > WIDTH && !is_whole {
                long.push(format!("{}:{}", path.display(), at + 1));
            }
        }
    }
    assert!(long.is_empty(), "longer than {WIDTH} characters:\n{}", long.join("\n"));
}

#[test]
fn words_are_found_as_whole_words() {
    assert!(has("a file of Theirs, too", "theirs"));
    assert!(!has("a file of theirself, and x_theirs", "theirs"));
    let style = "| never | write |\n|---|---|\n| `a`, `b c` | `d` |\n\n| avoid | write |\n|---|---|\n| `e` | |\n";
    assert_eq!(refused_words(style), ["a", "b c"]);
}
