//! Taking a map of YAML apart, key by key, with a complaint for what nobody took.

use crate::error::{Error, Result};
use crate::policy::yaml::{Node, Value};
use std::str::FromStr;

/// The keys of one map.
pub(super) struct Fields<'a> {
    file: &'a str,
    what: String,
    node: &'a Node,
    entries: Vec<(&'a Node, &'a str, &'a Node)>,
    known: Vec<&'static str>,
}

/// A value that was taken, with its place.
pub(super) struct Taken<'a, T> {
    file: &'a str,
    pub(super) line: u64,
    column: u64,
    pub(super) value: T,
}

impl<T> Taken<'_, T> {
    /// A complaint about this value.
    pub(super) fn wrong(&self, what: impl std::fmt::Display) -> Error {
        Error::usage(format!("{}:{}:{}", self.file, self.line, self.column), what)
    }
}

impl<'a> Fields<'a> {
    /// The keys of `node`, which is `what` in messages.
    pub(super) fn of(file: &'a str, what: impl Into<String>, node: &'a Node) -> Result<Self> {
        let what = what.into();
        let mut fields = Fields {
            file,
            what,
            node,
            entries: Vec::new(),
            known: Vec::new(),
        };
        match &node.value {
            // `sharing:` with nothing below it is an empty map to everybody who writes YAML.
            Value::Null => {}
            Value::Map(entries) => {
                for (key, value) in entries {
                    let name = match &key.value {
                        Value::Text(name) => name.as_str(),
                        other => return Err(fields.wrong(key, format!("{} is no key", other.describe()))),
                    };
                    fields.entries.push((key, name, value));
                }
            }
            other => {
                return Err(fields.wrong(
                    node,
                    format!("{} is a map of keys, not {}", fields.what, other.describe()),
                ));
            }
        }
        Ok(fields)
    }

    /// `file:line:column` of a node.
    pub(super) fn place(&self, node: &Node) -> String {
        format!("{}:{}:{}", self.file, node.line, node.column)
    }

    /// `file:line:column` of a key, if it is there.
    pub(super) fn place_of_key(&self, key: &str) -> Option<String> {
        self.entries
            .iter()
            .find(|(_, name, _)| *name == key)
            .map(|(key, ..)| self.place(key))
    }

    /// A complaint about a node.
    pub(super) fn wrong(&self, node: &Node, what: impl std::fmt::Display) -> Error {
        Error::usage(self.place(node), what)
    }

    /// A complaint about the map as a whole.
    pub(super) fn wrong_as_a_whole(&self, what: impl std::fmt::Display) -> Error {
        self.wrong(self.node, format!("{}: {what}", self.what))
    }

    /// Takes the value of `key`, if it is there. A key whose value is nothing counts as absent.
    pub(super) fn take(&mut self, key: &'static str) -> Option<&'a Node> {
        self.known.push(key);
        let at = self.entries.iter().position(|(_, name, _)| *name == key)?;
        let (_, _, value) = self.entries.remove(at);
        (!matches!(value.value, Value::Null)).then_some(value)
    }

    fn taken<T>(&self, node: &Node, value: T) -> Taken<'a, T> {
        Taken {
            file: self.file,
            line: node.line,
            column: node.column,
            value,
        }
    }

    /// Takes text; a number counts as its text (`compute: 80`).
    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<Taken<'a, &'a str>>> {
        match self.take(key) {
            None => Ok(None),
            Some(node) => match &node.value {
                Value::Text(t) | Value::Number(t) => Ok(Some(self.taken(node, t.as_str()))),
                other => Err(self.wrong(node, format!("{key} is {}", other.describe()))),
            },
        }
    }

    /// Takes what can be read from text.
    pub(super) fn parsed<T: FromStr<Err = Error>>(&mut self, key: &'static str) -> Result<Option<Taken<'a, T>>> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        match text.value.parse() {
            Ok(value) => Ok(Some(Taken {
                file: text.file,
                line: text.line,
                column: text.column,
                value,
            })),
            Err(e) => Err(text.wrong(format!("{key}: {e}"))),
        }
    }

    /// Takes a whole number.
    pub(super) fn number(&mut self, key: &'static str) -> Result<Option<Taken<'a, u32>>> {
        match self.text(key)? {
            None => Ok(None),
            Some(text) => match text.value.parse::<u32>() {
                Ok(value) => Ok(Some(Taken {
                    file: text.file,
                    line: text.line,
                    column: text.column,
                    value,
                })),
                Err(_) => Err(text.wrong(format!("{key}: \"{}\" is not a whole number", text.value))),
            },
        }
    }

    /// Takes true or false.
    pub(super) fn boolean(&mut self, key: &'static str) -> Result<Option<bool>> {
        match self.take(key) {
            None => Ok(None),
            Some(Node {
                value: Value::Bool(b), ..
            }) => Ok(Some(*b)),
            Some(node) => Err(self.wrong(node, format!("{key} is true or false, not {}", node.value.describe()))),
        }
    }

    /// Takes one of some words.
    pub(super) fn word<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Result<Option<T>> {
        let Some(text) = self.text(key)? else { return Ok(None) };
        match words.iter().find(|(word, _)| *word == text.value) {
            Some((_, value)) => Ok(Some(*value)),
            None => {
                let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                Err(text.wrong(format!("{key}: \"{}\" is none of {}", text.value, known.join(", "))))
            }
        }
    }

    /// Takes a list.
    pub(super) fn list(&mut self, key: &'static str) -> Result<Option<(&'a Node, &'a [Node])>> {
        match self.take(key) {
            None => Ok(None),
            Some(node) => match &node.value {
                Value::List(items) => Ok(Some((node, items))),
                other => Err(self.wrong(node, format!("{key} is a list, not {}", other.describe()))),
            },
        }
    }

    /// Complains about a key that nobody took.
    pub(super) fn finish(&self) -> Result<()> {
        let Some((key, name, _)) = self.entries.first() else {
            return Ok(());
        };
        let error = self.wrong(key, format!("\"{name}\" is no key of {}", self.what));
        let near = self
            .known
            .iter()
            .map(|known| (strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase()), known))
            .filter(|(likeness, _)| *likeness > 0.8)
            .max_by(|a, b| a.0.total_cmp(&b.0));
        Err(match near {
            Some((_, near)) => error.hint(format!("did you mean {near}?")),
            None => error.hint(format!("known here: {}", self.known.join(", "))),
        })
    }
}
