//! YAML with the place of everything in it, so that a message can say where.

use crate::error::{Error, Result};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use std::fmt;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// Line, from 1.
    pub(super) line: u64,
    /// Column, from 1.
    pub(super) column: u64,
    /// What stands there.
    pub(super) value: Value,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    Null,
    Bool(bool),
    /// Numbers and text alike, as far as they fit in text without loss: the reader of a field knows what it wants.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

impl Value {
    /// What this is, for a message.
    pub(super) fn describe(&self) -> String {
        match self {
            Value::Null => "nothing".to_owned(),
            Value::Bool(b) => format!("{b}"),
            Value::Number(n) => n.clone(),
            Value::Text(t) => format!("\"{t}\""),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
        }
    }
}

/// Reads a document; `file` is for messages.
///
/// # Errors
/// What is not YAML, a key that stands twice, more nesting than a policy can have.
pub(super) fn parse(file: &str, text: &str) -> Result<Node> {
    let spanned: Spanned<Value> = serde_saphyr::from_str(text).map_err(|e| {
        let place = e
            .location()
            .map_or_else(|| file.to_owned(), |l| format!("{file}:{}:{}", l.line(), l.column()));
        let message = e.without_snippet().to_string();
        Error::usage(place, message.lines().next().unwrap_or("not YAML").to_owned())
    })?;
    Ok(node(spanned))
}

fn node(spanned: Spanned<Value>) -> Node {
    Node {
        line: spanned.referenced.line(),
        column: spanned.referenced.column(),
        value: spanned.value,
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: de::Error>(self) -> std::result::Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> std::result::Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> std::result::Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> std::result::Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> std::result::Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> std::result::Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = seq.next_element::<Spanned<Value>>()? {
            list.push(node(item));
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = map.next_entry::<Spanned<Value>, Spanned<Value>>()? {
            entries.push((node(key), node(value)));
        }
        Ok(Value::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_its_place() {
        let doc = parse(
            "c.yaml",
            "version: v1\nsharing:\n  mps:\n    resources:\n    - {name: a, replicas: 10}\n",
        )
        .unwrap();
        let Value::Map(top) = &doc.value else { panic!("{doc:?}") };
        assert_eq!((top[1].0.line, top[1].0.column), (2, 1));
        let Value::Map(sharing) = &top[1].1.value else { panic!() };
        let Value::Map(mps) = &sharing[0].1.value else { panic!() };
        let Value::List(list) = &mps[0].1.value else { panic!() };
        let Value::Map(entry) = &list[0].value else { panic!() };
        assert_eq!((entry[1].1.line, entry[1].1.column), (5, 27));
        assert!(matches!(&entry[1].1.value, Value::Number(n) if n == "10"));
    }

    #[test]
    fn what_is_not_yaml_is_said_with_its_place() {
        let e = parse("c.yaml", "a: [1\nb: 2\n").unwrap_err().to_string();
        assert!(e.starts_with("c.yaml:"), "{e}");
        let e = parse("c.yaml", "a: 1\na: 2\n").unwrap_err().to_string();
        assert!(e.starts_with("c.yaml:2"), "{e}");
    }
}
