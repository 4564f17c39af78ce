//! docs/how-to/troubleshooting.md: each heading is a message that the source has, or one of another program that is
//! listed here.

use std::fs;
use std::path::Path;
use walkdir::WalkDir;

const PAGE: &str = include_str!("../../docs/how-to/troubleshooting.md");

/// The sign for a part of a message that differs from case to case.
const VARIES: char = '…';

/// The messages of other programs. The text of an entry names the program.
const OTHERS: [(&str, &str); 12] = [
    ("podman", "unresolvable CDI devices …"),
    ("crun", "error executing hook … (exit code: 1)"),
    (
        "runc",
        "error running hook #… exit status 1, stdout: , stderr: tranche-oci: …",
    ),
    ("runc", "fork/exec …/tranche-oci: no such file or directory"),
    ("podman", "failed to stat CDI host device …"),
    ("crun", "error stat'ing file …: No such file or directory"),
    ("runc", "error mounting … to rootfs at …: no such file or directory"),
    ("docker", "nvidia.com/gpu=… is not an absolute path"),
    ("docker", "could not select device driver \"…\" with capabilities: …"),
    ("podman", "stat nvidia.com/gpu…: no such file or directory"),
    ("nvidia-smi", "Failed to initialize NVML: Unknown Error"),
    ("podman", "unknown stage \"precreate\""),
];

/// A message of the page, and the text about it.
struct Entry {
    message: String,
    text: String,
}

/// The entries of the page. Headings that follow each other have one text.
fn entries(page: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    // Where the headings begin that the text is about, and whether some of it was read.
    let (mut first, mut has_text) = (0, true);
    for line in page.lines() {
        if line.starts_with("## ") {
            assert!(has_text, "{line}: the message before it has no text");
        } else if let Some(heading) = line.strip_prefix("### ") {
            if std::mem::take(&mut has_text) {
                first = entries.len();
            }
            let message = heading.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
            entries.push(Entry {
                message: message.unwrap_or_else(|| panic!("{heading}: not a message")).to_owned(),
                text: String::new(),
            });
        } else if !line.is_empty() && !entries.is_empty() {
            has_text = true;
            entries[first..].iter_mut().for_each(|entry| entry.text += line);
        }
    }
    entries
}

/// The string literals of the source without its tests, each placeholder of a format as [`VARIES`].
fn literals() -> Vec<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = WalkDir::new(source).into_iter().map(|entry| entry.unwrap().into_path());
    let files = files.filter(|path| path.extension().is_some_and(|e| e == "rs") && !path.ends_with("tests.rs"));
    let texts = files.map(|path| fs::read_to_string(path).unwrap());
    texts
        .flat_map(|text| in_quotes(text.split("#[cfg(test)]\nmod tests {").next().unwrap()))
        .map(|literal| blanked(&literal))
        .collect()
}

/// The string literals of a Rust file. Comments and raw strings have none that matter here.
pub(crate) fn in_quotes(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let text = lines
        .collect::<Vec<_>>()
        .join("\n")
        .replace("'\"'", "")
        .replace("b'\"'", "");
    let mut literals = Vec::new();
    let mut inside: Option<String> = None;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (&mut inside, c) {
            (None, '"') => inside = Some(String::new()),
            (None, _) => {}
            (Some(_), '"') => literals.extend(inside.take()),
            (Some(literal), '\\') => match chars.next() {
                // The line goes on at the first character that is not a space.
                Some('\n') => while chars.next_if(|c| c.is_whitespace()).is_some() {},
                Some(escaped) => literal.push(escaped),
                None => {}
            },
            (Some(literal), c) => literal.push(c),
        }
    }
    literals
}

/// `text` with one [`VARIES`] for each run of placeholders.
pub(crate) fn blanked(text: &str) -> String {
    let mut blanked = String::new();
    let mut depth = 0;
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth = depth.max(1) - 1;
                if depth == 0 && blanked.trim_end().ends_with(VARIES) {
                    blanked.truncate(blanked.trim_end().len());
                } else if depth == 0 {
                    blanked.push(VARIES);
                }
            }
            c if depth == 0 => blanked.push(c),
            _ => {}
        }
    }
    blanked
}

/// The parts of a message that come from different literals: object, what is wrong, what to do.
fn clauses(message: &str) -> Vec<&str> {
    message.split(": ").flat_map(|part| part.split("; ")).collect()
}

fn words(text: &str) -> usize {
    text.split([' ', VARIES])
        .filter(|word| word.chars().any(char::is_alphabetic))
        .count()
}

/// Whether `clause` is what `literal` prints. A [`VARIES`] of the literal stands for any text.
fn prints(literal: &str, clause: &str) -> bool {
    let mut parts = literal.split(VARIES);
    let Some(mut rest) = parts.next().and_then(|first| clause.strip_prefix(first)) else {
        return false;
    };
    let mut ends_open = false;
    for part in parts {
        ends_open = part.is_empty();
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty() || ends_open
}

/// The clauses of `message` that no literal prints. The first one is the object of the message and not compared, if
/// others follow.
fn unknown<'m>(message: &'m str, literals: &[String]) -> Vec<&'m str> {
    let all = clauses(message);
    let objects = usize::from(all.len() > 1);
    let is_printed = |clause: &str| {
        let mut known = literals.iter().flat_map(|literal| clauses(literal));
        // A literal that is mostly placeholders prints anything.
        known.any(|known| known == clause || (2 * words(known) >= words(clause).max(3) && prints(known, clause)))
    };
    // A relative clause may be appended by the caller of what it is about.
    let is_printed = |clause: &str| {
        let mut parts = clause.split(", which ");
        is_printed(clause) || parts.all(is_printed)
    };
    let compared = all.into_iter().skip(objects);
    compared
        .filter(|clause| *clause != VARIES.to_string() && !is_printed(clause))
        .collect()
}

/// The message of another program that `message` is.
fn of_another(message: &str) -> Option<&'static (&'static str, &'static str)> {
    OTHERS
        .iter()
        .find(|(_, other)| *other == message || prints(other, message))
}

#[test]
fn each_message_is_one_that_is_printed() {
    let literals = literals();
    assert!(literals.len() > 1000, "{}", literals.len());
    let entries = entries(PAGE);
    assert!((25..90).contains(&entries.len()), "{}", entries.len());
    for Entry { message, text } in &entries {
        assert!(words(message) > 1, "{message}");
        match of_another(message) {
            Some((program, _)) => assert!(text.contains(program), "{message}: its text does not name {program}"),
            None => assert_eq!(unknown(message, &literals), Vec::<&str>::new(), "{message}"),
        }
        assert!(words(text) > 5, "{message}: {text}");
    }
    for (_, other) in OTHERS {
        let is_there = entries
            .iter()
            .any(|entry| of_another(&entry.message).is_some_and(|(_, is)| is == &other));
        assert!(is_there, "{other}: not on the page");
    }
}

#[test]
fn a_message_that_is_not_printed_is_noticed() {
    let literals = [
        "{} holds {part}{device} since {}",
        "not replaced, because the host is {why}: {}",
        "gone",
    ]
    .map(blanked);
    assert_eq!(unknown("gpu …: container … holds share … since …", &literals), [""; 0]);
    assert_eq!(
        unknown("…: not replaced, because the host is gone: …; gone", &literals),
        [""; 0]
    );
    assert_eq!(
        unknown("gpu …: container … has share … since …", &literals),
        ["container … has share … since …"]
    );
    assert_eq!(unknown("…: gone away", &literals), ["gone away"]);
    assert_eq!(
        in_quotes("a(\"x \\\n    y\", 'c', \"\\\"z\\\"\") // \"no\n  // \"no\""),
        ["x y", "\"z\""]
    );
}
