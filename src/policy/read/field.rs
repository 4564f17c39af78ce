//! Taking a map of YAML apart, key by key, with an error for every key that is unknown.

use crate::error::{Error, Result};
use crate::policy::yaml::{Node, Value};
use crate::policy::{Place, Placed};
use std::fmt::Display;
use std::str::FromStr;

/// The keys of one map.
///
/// NVIDIA's device plugin reads its file with Go's JSON decoder, which accepts keys in any letter case. So do we, for every
/// key.
pub(super) struct Fields<'a> {
    file: &'a str,
    what: &'static str,
    node: &'a Node,
    entries: Vec<(&'a Node, &'a str, &'a Node)>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// The keys of `node`, which messages call `what`.
    ///
    /// # Errors
    /// A node that is not a map of keys.
    pub(super) fn of(file: &'a str, what: &'static str, node: &'a Node) -> Result<Self> {
        let mut fields = Fields {
            file,
            what,
            node,
            entries: Vec::new(),
            known: Vec::new(),
        };
        let entries = match &node.value {
            Value::Null => &[],
            Value::Map(entries) => entries.as_slice(),
            other => {
                let found = other.describe();
                return Err(fields
                    .wrong(node.place, format!("{what}: expected keys with values, found {found}"))
                    .hint("write KEY: VALUE, one on each line"));
            }
        };
        for (key, value) in entries {
            let Value::Text(name) = &key.value else {
                let found = key.value.describe();
                return Err(fields.wrong(key.place, format!("{what}: expected the name of a key, found {found}")));
            };
            if let Some((_, other, _)) = fields
                .entries
                .iter()
                .find(|(_, other, _)| name.eq_ignore_ascii_case(other))
            {
                return Err(fields
                    .wrong(
                        key.place,
                        format!("{what}: \"{other}\" and \"{name}\" are the same key"),
                    )
                    .hint("the case of letters does not count; remove one of them"));
            }
            fields.entries.push((key, name, value));
        }
        Ok(fields)
    }

    /// An error about what is at `place`.
    pub(super) fn wrong(&self, place: Place, what: impl Display) -> Error {
        Error::usage(place.of(self.file), what)
    }

    /// An error about the map as a whole.
    pub(super) fn wrong_as_a_whole(&self, what: impl Display) -> Error {
        self.wrong(self.node.place, format!("{}: {what}", self.what))
    }

    /// Takes the value of `key`, if it is there. A key without a value counts as absent.
    pub(super) fn take(&mut self, key: &'static str) -> Option<&'a Node> {
        self.known.push(key);
        let at = self
            .entries
            .iter()
            .position(|(_, name, _)| key.eq_ignore_ascii_case(name))?;
        let (_, _, value) = self.entries.remove(at);
        (!matches!(value.value, Value::Null)).then_some(value)
    }

    /// Takes the value of `key` where it holds anything: `mps: {}` is the same as `mps:`.
    pub(super) fn take_section(&mut self, key: &'static str) -> Option<&'a Node> {
        self.take(key)
            .filter(|node| !matches!(&node.value, Value::Map(entries) if entries.is_empty()))
    }

    /// Takes what was not taken, key by key.
    pub(super) fn rest(&mut self) -> Vec<(Place, &'a str)> {
        let rest = std::mem::take(&mut self.entries).into_iter();
        rest.map(|(key, name, _)| (key.place, name)).collect()
    }

    /// Where `key` is, without taking it.
    pub(super) fn place_of_key(&self, key: &str) -> Option<Place> {
        let mut entries = self.entries.iter();
        entries
            .find(|(_, name, _)| key.eq_ignore_ascii_case(name))
            .map(|(node, ..)| node.place)
    }

    /// Takes text; a number counts as its text (`compute: 80`).
    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<Placed<&'a str>>> {
        match self.take(key) {
            None => Ok(None),
            Some(node) => match &node.value {
                Value::Text(text) | Value::Number(text) => Ok(Some(Placed {
                    place: node.place,
                    value: text,
                })),
                other => Err(self.wrong(
                    node.place,
                    format!("{key}: expected one value, found {}", other.describe()),
                )),
            },
        }
    }

    /// Takes what can be read from text.
    pub(super) fn parsed<T: FromStr<Err = Error>>(&mut self, key: &'static str) -> Result<Option<Placed<T>>> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        match text.value.parse() {
            Ok(value) => Ok(Some(Placed {
                place: text.place,
                value,
            })),
            Err(e) => Err(self.wrong(text.place, format!("{key}: {e}"))),
        }
    }

    /// Takes a whole number.
    pub(super) fn number(&mut self, key: &'static str) -> Result<Option<Placed<u32>>> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        match text.value.parse::<u64>() {
            Ok(value) => Ok(Some(Placed {
                place: text.place,
                // Whoever takes a number has a bound far below this.
                value: u32::try_from(value).unwrap_or(u32::MAX),
            })),
            Err(_) => Err(self
                .wrong(text.place, format!("{key}: \"{}\" is not a whole number", text.value))
                .hint("write digits only, like 4")),
        }
    }

    /// Takes true or false.
    pub(super) fn boolean(&mut self, key: &'static str) -> Result<Option<bool>> {
        match self.take(key) {
            None => Ok(None),
            Some(Node {
                value: Value::Bool(b), ..
            }) => Ok(Some(*b)),
            Some(node) => {
                let found = node.value.describe();
                Err(self.wrong(node.place, format!("{key}: expected true or false, found {found}")))
            }
        }
    }

    /// Takes one of some words.
    pub(super) fn word<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Result<Option<T>> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        match words.iter().find(|(word, _)| *word == text.value) {
            Some((_, value)) => Ok(Some(*value)),
            None => {
                let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                Err(self
                    .wrong(text.place, format!("{key}: \"{}\" is unknown", text.value))
                    .hint(format!("write {}", known.join(" or "))))
            }
        }
    }

    /// Takes a list.
    pub(super) fn list(&mut self, key: &'static str) -> Result<Option<(&'a Node, &'a [Node])>> {
        match self.take(key) {
            None => Ok(None),
            Some(node) => match &node.value {
                Value::List(items) => Ok(Some((node, items))),
                other => Err(self
                    .wrong(
                        node.place,
                        format!("{key}: expected a list, found {}", other.describe()),
                    )
                    .hint("begin each item with a hyphen")),
            },
        }
    }

    /// Fails where a key is left that nobody took.
    ///
    /// # Errors
    /// A key that is unknown here; the nearest known one is offered.
    pub(super) fn finish(&self) -> Result<()> {
        let Some((key, name, _)) = self.entries.first() else {
            return Ok(());
        };
        let error = self.wrong(key.place, format!("\"{name}\" is unknown in {}", self.what));
        Err(match self.near(name) {
            Some(near) => error.hint(format!("did you mean {near}?")),
            None => error.hint(format!("known keys are {}", crate::text::some(&self.known))),
        })
    }

    /// The known key that a person who wrote `name` may have meant.
    pub(super) fn near(&self, name: &str) -> Option<&'static str> {
        let known = self.known.iter().map(|known| {
            let likeness = strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase());
            (likeness, *known)
        });
        known
            .filter(|(likeness, _)| *likeness > 0.8)
            .max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, known)| known)
    }
}
