//! The parts of docs/maintaining/style.md that a program can check, and the links of the documents.

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
    let style = top().join("docs/maintaining/style.md");
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
        "docs/maintaining/style.md has other words for these:\n{}",
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

/// Every file that belongs to the project and is text, with its name below the top.
fn sources() -> Vec<(String, String)> {
    // `make dist` adds vendor, which has the crates. The fuzzer and the mutants write into their directories.
    let others = ["target", ".git", "vendor", "fuzz/target", "mutants.out"].map(|other| top().join(other));
    let entries = WalkDir::new(top()).into_iter();
    let entries = entries.filter_entry(|entry| !others.iter().any(|other| entry.path() == other));
    let files = entries
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().is_file());
    files
        .filter_map(|entry| {
            let name = entry.path().strip_prefix(top()).unwrap().to_str()?.to_owned();
            Some((name, fs::read_to_string(entry.path()).ok()?))
        })
        .collect()
}

/// The anchors of a document: those of its headings, as GitHub makes them, and those that it sets itself.
fn anchors(text: &str) -> Vec<String> {
    let of_heading = |heading: &str| -> String {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() })
            .collect()
    };
    // A comment of a shell is no heading.
    let outside_of_code = text.split("```").step_by(2).flat_map(str::lines);
    let headings = outside_of_code.filter(|line| line.starts_with('#'));
    let headings = headings.map(|line| of_heading(line.trim_start_matches('#').trim()));
    let set = text.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next());
    headings.chain(set.map(str::to_owned)).collect()
}

/// The links of a document that lead nowhere: those to a file or a heading that does not exist.
fn broken_links(name: &str, text: &str) -> Vec<String> {
    let directory = top().join(name).with_file_name("");
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let is_there = |target: &str| match target.split_once('#') {
        None => directory.join(target).exists(),
        Some(("", anchor)) => anchors(text).contains(&anchor.to_owned()),
        Some((file, anchor)) => {
            fs::read_to_string(directory.join(file)).is_ok_and(|text| anchors(&text).contains(&anchor.to_owned()))
        }
    };
    let broken = targets.filter(|target| !target.contains("://") && !is_there(target));
    broken.map(|target| format!("{name}: {target}")).collect()
}

/// The documents of this project that `text` names by their path below the top.
fn named_documents(text: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/.-_".contains(c);
    let words = text.split(|c| !is_part(c)).map(|word| word.trim_end_matches('.'));
    let words = words.map(|word| word.trim_start_matches("../").trim_start_matches("/../"));
    words
        .filter(|word| word.starts_with("docs/") && [".md", ".svg", ".yaml"].iter().any(|end| word.ends_with(end)))
        .collect()
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let documents: Vec<_> = sources()
        .into_iter()
        .filter(|(name, _)| name.ends_with(".md"))
        .collect();
    assert!(documents.len() > 30, "{}", documents.len());
    let broken: Vec<String> = documents
        .iter()
        .flat_map(|(name, text)| broken_links(name, text))
        .collect();
    assert!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
}

#[test]
fn documents_that_a_file_names_exist() {
    // Of containerd, and of versions of the past.
    let is_of_another = |name: &str, document: &str| document == "docs/PLUGINS.md" || name == "CHANGELOG.md";
    let (mut named, mut missing) = (0, Vec::new());
    for (name, text) in &sources() {
        for document in named_documents(text)
            .into_iter()
            .filter(|document| !is_of_another(name, document))
        {
            named += 1;
            if !top().join(document).exists() && name != "tests/style.rs" {
                missing.push(format!("{name}: {document}"));
            }
        }
    }
    assert!(named > 100, "{named}");
    assert!(missing.is_empty(), "named and not there:\n{}", missing.join("\n"));
}

/// The paths of sources that a document names in code quotes. One with capitals for a part that varies is none.
fn named_sources(text: &str) -> Vec<&str> {
    let code = text.split('`').skip(1).step_by(2);
    let paths = code.filter(|code| {
        ["src/", "tests/", "examples/", "packaging/"]
            .iter()
            .any(|top| code.starts_with(top))
    });
    paths
        .map(|path| path.split("::").next().unwrap_or(path))
        .filter(|path| !path.contains(|c: char| c.is_whitespace() || c.is_ascii_uppercase() || "*{…".contains(c)))
        .collect()
}

#[test]
fn sources_that_a_document_names_exist() {
    let (mut named, mut missing) = (0, Vec::new());
    for (document, text) in texts(&["docs"], &["md"]) {
        for source in named_sources(&text) {
            named += 1;
            if !top().join(source).exists() {
                missing.push(format!("{}: {source}", document.display()));
            }
        }
    }
    assert!(named > 80, "{named}");
    assert!(missing.is_empty(), "named and not there:\n{}", missing.join("\n"));
    assert_eq!(
        named_sources("`src/no.rs`, `src/VERB.rs`, `tests/a.rs::b` and `a src/b`"),
        ["src/no.rs", "tests/a.rs"]
    );
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric())
}

/// The keys of a configuration, also those that stand in a comment as they would be written.
fn keys(configuration: &str) -> Vec<&str> {
    let lines = configuration.lines().map(str::trim_start).filter_map(|line| {
        let (line, is_comment) = match line.strip_prefix('#') {
            Some(comment) => (comment.trim_start(), true),
            None => (line, false),
        };
        let written = line.split(" #").next().unwrap_or(line);
        let is_sentence = is_comment
            && !words(written)
                .next()
                .is_some_and(|first| written[first.len()..].starts_with(':'));
        (!is_sentence).then_some(written)
    });
    let before_colons = lines.flat_map(|line| {
        line.match_indices(": ")
            .map(|(at, _)| &line[..at])
            .chain(line.strip_suffix(':'))
    });
    let keys = before_colons.filter_map(|before| words(before).last());
    keys.filter(|key| key.starts_with(|c: char| c.is_ascii_lowercase()))
        .collect()
}

#[test]
fn the_page_of_the_policy_has_every_key() {
    // Of groups and users.
    let names = ["phd", "guests", "ann"];
    let example = fs::read_to_string(top().join("docs/examples/config.yaml")).unwrap();
    let page = fs::read_to_string(top().join("docs/reference/policy.md")).unwrap();
    let page: Vec<&str> = words(&page).collect();
    let keys = keys(&example);
    assert!(keys.len() > 80, "{}", keys.len());
    let is_missing = |key: &&&str| !names.contains(*key) && !page.contains(*key);
    let missing: Vec<&&str> = keys.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "docs/reference/policy.md does not have {missing:?}");
}

#[test]
fn a_broken_link_is_noticed() {
    let text = "[a](style.md#words-and-sentences) [b](style.md#no-such) [c](no-such.md) [d](#e) [f](#g) [h](https://i)\n# E\n```\n# G\n```\n";
    assert_eq!(
        broken_links("docs/maintaining/x.md", text),
        [
            "docs/maintaining/x.md: style.md#no-such",
            "docs/maintaining/x.md: no-such.md",
            "docs/maintaining/x.md: #g"
        ]
    );
    assert_eq!(
        named_documents("see docs/no/such.md. include_str!(\"../../docs/a.md\"), a/docs/b.md"),
        ["docs/no/such.md", "docs/a.md"]
    );
}
