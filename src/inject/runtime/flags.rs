//! Options of a command line in the forms of Go's `flag` package, which runc uses, and of `argp`, which crun uses.
//!
//! | form | runc | crun |
//! |---|---|---|
//! | `--bundle B`, `--bundle=B`, `-b B` | yes | yes |
//! | `-bundle B`, `-b=B` | yes | – |
//! | `-bB`, `-db B`, and `--bund B` if no other option begins like this | – | yes |

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// The options of a command: the long name, the letters, and whether a value follows.
pub(super) type Flags = &'static [(&'static str, &'static str, bool)];

/// An option that was given.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Given<'w> {
    /// Its long name.
    pub name: &'static str,
    /// Its value.
    pub value: Option<&'w OsStr>,
    /// The index of its first word.
    pub at: usize,
    /// How many words it has.
    pub words: usize,
}

/// Reads options from the word `from` on, and returns the known ones and the index of the first word that is not an
/// option. `has_value` decides about an unknown option that is followed by these words, of which the first is not an
/// option.
pub(super) fn read(
    words: &[OsString],
    from: usize,
    known: Flags,
    has_value: impl Fn(&[OsString]) -> bool,
) -> (Vec<Given<'_>>, usize) {
    let mut given = Vec::new();
    let mut at = from;
    while let Some(word) = words.get(at) {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            return (given, at + 1);
        }
        if !is_option(word) {
            break;
        }
        let next = words.get(at + 1..).unwrap_or_default();
        let named = match bytes.strip_prefix(b"--") {
            Some(name) => long(name, known),
            None => go_style(&bytes[1..], known).or_else(|| letters(&bytes[1..], known, at, &mut given)),
        };
        let taken = match named {
            Some(NamedFlag {
                name,
                value: Some(value),
                ..
            }) => {
                given.push(Given {
                    name,
                    value: Some(value),
                    at,
                    words: 1,
                });
                1
            }
            Some(NamedFlag {
                name,
                takes_value: true,
                ..
            }) => {
                let value = next.first().map(OsString::as_os_str);
                given.push(Given {
                    name,
                    value,
                    at,
                    words: 2,
                });
                2
            }
            Some(NamedFlag { name, .. }) => {
                given.push(Given {
                    name,
                    value: None,
                    at,
                    words: 1,
                });
                1
            }
            None if bytes.contains(&b'=') => 1,
            None if next.first().is_some_and(|word| !is_option(word)) && has_value(next) => 2,
            None => 1,
        };
        at += taken;
    }
    (given, at)
}

/// An option as its word names it.
struct NamedFlag<'w> {
    name: &'static str,
    takes_value: bool,
    value: Option<&'w OsStr>,
}

fn is_option(word: &OsStr) -> bool {
    word.len() > 1 && word.as_bytes().starts_with(b"-")
}

/// The name before `=`, and the value after it.
fn parts(word: &[u8]) -> (&[u8], Option<&OsStr>) {
    match word.iter().position(|byte| *byte == b'=') {
        Some(at) => (&word[..at], Some(OsStr::from_bytes(&word[at + 1..]))),
        None => (word, None),
    }
}

/// `--name`, or its unambiguous beginning.
fn long<'w>(word: &'w [u8], known: Flags) -> Option<NamedFlag<'w>> {
    let (name, value) = parts(word);
    let exact = known.iter().find(|(long, ..)| long.as_bytes() == name);
    let flag = exact.or_else(|| {
        let mut begin = known.iter().filter(|(long, ..)| long.as_bytes().starts_with(name));
        begin.next().filter(|_| begin.next().is_none())
    })?;
    Some(NamedFlag {
        name: flag.0,
        takes_value: flag.2,
        value,
    })
}

/// `-name` and `-n`, exactly.
fn go_style<'w>(word: &'w [u8], known: Flags) -> Option<NamedFlag<'w>> {
    let (name, value) = parts(word);
    let is = |(long, letters, _): &&(&str, &str, bool)| {
        long.as_bytes() == name || matches!(name, [letter] if letters.as_bytes().contains(letter))
    };
    let flag = known.iter().find(is)?;
    Some(NamedFlag {
        name: flag.0,
        takes_value: flag.2,
        value,
    })
}

/// Several letters in one word, of which the last may have its value behind it: all but the last are added to `given`.
fn letters<'w>(word: &'w [u8], known: Flags, at: usize, given: &mut Vec<Given<'w>>) -> Option<NamedFlag<'w>> {
    let flag = |letter: u8| {
        known
            .iter()
            .find(|(_, letters, _)| letters.as_bytes().contains(&letter))
    };
    // All letters up to one with a value are known, or else the word is not of this form.
    let ends = word.iter().position(|letter| flag(*letter).is_none_or(|flag| flag.2));
    let last = ends.unwrap_or(word.len().checked_sub(1)?);
    let (name, _, takes_value) = *flag(*word.get(last)?)?;
    let before = word.get(..last)?.iter().filter_map(|letter| flag(*letter));
    given.extend(before.map(|(name, ..)| Given {
        name,
        value: None,
        at,
        words: 1,
    }));
    let value = word
        .get(last + 1..)
        .filter(|value| !value.is_empty())
        .map(OsStr::from_bytes);
    Some(NamedFlag {
        name,
        takes_value,
        value,
    })
}
