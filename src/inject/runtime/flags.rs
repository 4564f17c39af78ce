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
    let mut read = Anywhere::default();
    let at = read.options(words, from, known, &has_value);
    let is_end = words.get(at).is_some_and(|word| word == END);
    (read.given, if is_end { at + 1 } else { at })
}

/// Ends the options.
const END: &str = "--";

/// Options among other words.
#[derive(Debug, Default)]
pub(super) struct Anywhere<'w> {
    /// The known options.
    pub given: Vec<Given<'w>>,
    /// The words that are no options.
    pub others: Vec<&'w OsStr>,
    /// The values of the other options.
    pub unknown: Vec<&'w OsStr>,
}

/// As [`read`], with options that are behind other words too, up to `--`. An unknown option has a value, unless fewer
/// than `least` other words would be left.
pub(super) fn read_anywhere<'w>(words: &'w [OsString], from: usize, known: Flags, least: usize) -> Anywhere<'w> {
    let mut read = Anywhere::default();
    let mut at = from;
    loop {
        let others = read.others.len();
        at = read.options(words, at, known, &|next| others + next.len() > least);
        match words.get(at) {
            None => return read,
            Some(word) if word == END => {
                let rest = words.get(at + 1..).unwrap_or_default();
                read.others.extend(rest.iter().map(OsString::as_os_str));
                return read;
            }
            Some(word) => read.others.push(word),
        }
        at += 1;
    }
}

impl<'w> Anywhere<'w> {
    /// Reads options from the word `from` on, and returns the index of the first word that is not one.
    fn options(
        &mut self,
        words: &'w [OsString],
        from: usize,
        known: Flags,
        has_value: &impl Fn(&[OsString]) -> bool,
    ) -> usize {
        let mut at = from;
        while let Some(word) = words.get(at).filter(|word| is_option(word) && *word != END) {
            at += self.option(word, at, words.get(at + 1..).unwrap_or_default(), known, has_value);
        }
        at
    }

    /// Reads the option at the index `at`, which `next` follow, and returns how many words it has.
    fn option(
        &mut self,
        word: &'w OsStr,
        at: usize,
        next: &'w [OsString],
        known: Flags,
        has_value: &impl Fn(&[OsString]) -> bool,
    ) -> usize {
        let bytes = word.as_bytes();
        let named = match bytes.strip_prefix(b"--") {
            Some(name) => long(name, known),
            None => {
                let name = bytes.get(1..).unwrap_or_default();
                go_style(name, known).or_else(|| letters(name, known, at, &mut self.given))
            }
        };
        let (value, words) = match &named {
            Some(NamedFlag { value: Some(value), .. }) => (Some(*value), 1),
            Some(NamedFlag { takes_value: true, .. }) => (next.first().map(OsString::as_os_str), 2),
            Some(_) => (None, 1),
            None => match parts(bytes).1 {
                Some(value) => (Some(value), 1),
                None => {
                    let value = next.first().filter(|word| !is_option(word) && has_value(next));
                    (value.map(OsString::as_os_str), 1 + usize::from(value.is_some()))
                }
            },
        };
        match named {
            Some(NamedFlag { name, .. }) => self.given.push(Given { name, value, at, words }),
            None => self.unknown.extend(value.or(Some(OsStr::new("")))),
        }
        words
    }
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
