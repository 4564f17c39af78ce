//! YAML that people write: one set of options for the parser, and the place of each value and of each error.

mod origin;

pub use origin::TextOrigin;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Location, MergeKeyPolicy, Options, Spanned};
use std::fmt;
use tranche_core::types::Place;

/// Options of the parser: merge keys (`<<`) work, and an error is one line without an excerpt of the file.
pub fn options() -> Options {
    serde_saphyr::options! {
        with_snippet: false,
        merge_keys: MergeKeyPolicy::Merge,
    }
}

/// The place that the parser calls `location`; `None` if it does not know the place.
pub fn place(location: Location) -> Option<Place> {
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    (location.line() > 0).then(|| Place {
        line: number(location.line()),
        column: number(location.column()),
    })
}

/// The place of an error of the parser, and its text in one line without that place.
pub fn explain(error: &serde_saphyr::Error) -> (Option<Place>, String) {
    let text = error.without_snippet().to_string();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    (
        error.location().and_then(place),
        without_place(line.unwrap_or("not valid YAML")).to_owned(),
    )
}

/// The parser names the place in its text too, before or after the message.
fn without_place(text: &str) -> &str {
    let text = text.find(" at line ").map_or(text, |at| &text[..at]);
    match text.strip_prefix("error: line ") {
        Some(rest) => rest.split_once(": ").map_or(text, |(_, what)| what),
        None => text.strip_prefix("error: ").unwrap_or(text),
    }
}

/// A value with its place.
pub type Node = Spanned<Value>;

/// Any YAML value, with the place of everything in it.
#[derive(Debug, Clone)]
pub enum Value {
    /// No value.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, as text.
    Number(String),
    /// Text, with quotes or without.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// Keys with values, in the order of the document.
    Map(Vec<(Node, Node)>),
}

impl Value {
    /// The text of a text or a number, since people write either where the other is meant.
    pub fn text(&self) -> Option<&str> {
        match self {
            Value::Text(text) | Value::Number(text) => Some(text),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    /// What this is, for a message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("nothing"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Number(number) => f.write_str(number),
            Value::Text(text) => write!(f, "\"{text}\""),
            Value::List(_) => f.write_str("a list"),
            Value::Map(_) => f.write_str("a map"),
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

/// Methods that accept one kind of scalar value each.
macro_rules! scalars {
    ($($visit:ident($($name:ident: $type:ty)?) => $value:expr),* $(,)?) => {
        $(fn $visit<E>(self $(, $name: $type)?) -> Result<Value, E> {
            Ok($value)
        })*
    };
}

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    scalars!(
        visit_unit() => Value::Null,
        visit_none() => Value::Null,
        visit_bool(value: bool) => Value::Bool(value),
        visit_i64(number: i64) => Value::Number(number.to_string()),
        visit_u64(number: u64) => Value::Number(number.to_string()),
        visit_i128(number: i128) => Value::Number(number.to_string()),
        visit_u128(number: u128) => Value::Number(number.to_string()),
        visit_f64(number: f64) => Value::Number(number.to_string()),
        visit_str(text: &str) => Value::Text(text.to_owned()),
    );

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Value::Map(entries))
    }
}
