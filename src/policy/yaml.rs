//! YAML with the place of everything in it, so that a message can say where.

use super::Place;
use crate::error::{Error, Result};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use std::fmt;

/// A value and where it is.
#[derive(Debug, Clone)]
pub(super) struct Node {
    /// Where it begins.
    pub(super) place: Place,
    /// What is there.
    pub(super) value: Value,
}

/// Where a document is within the file that a person edits.
#[derive(Debug, Clone, Copy)]
pub(super) enum Origin {
    /// It is the file.
    File,
    /// Its first line follows this many lines, and each of its lines is indented by so many characters.
    Within { lines: u32, indent: u32 },
    /// It is a text whose lines cannot be found again in the file (folded or quoted): all of it is there.
    At(Place),
}

impl Origin {
    fn place(self, line: u64, column: u64) -> Place {
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let (line, column) = (small(line), small(column));
        match self {
            Origin::File => Place { line, column },
            Origin::Within { lines, indent } => Place {
                line: line.saturating_add(lines),
                column: column.saturating_add(indent),
            },
            Origin::At(place) => place,
        }
    }
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
/// What is not YAML, a key that is there twice, more nesting than a policy can have.
pub(super) fn parse(file: &str, text: &str, origin: Origin) -> Result<Node> {
    let spanned: Spanned<Value> = serde_saphyr::from_str(text).map_err(|error| {
        let place = error.location().map(|l| origin.place(l.line(), l.column()));
        let (what, hint) = in_our_words(error.without_snippet());
        Error::usage(place.unwrap_or_default().of(file), what).hint(hint)
    })?;
    let mut node = node(spanned);
    node.shift(origin);
    Ok(node)
}

/// What the library found, for a person who knows YAML and not the library: what is wrong, and what to do.
fn in_our_words(error: &serde_saphyr::Error) -> (String, &'static str) {
    use serde_saphyr::Error as E;
    let (what, hint) = match error {
        E::AliasError { error, .. } => return in_our_words(error),
        E::DuplicateMappingKey { key: Some(key), .. } => {
            return (format!("the key \"{key}\" is there twice"), "remove one of them");
        }
        E::DuplicateMappingKey { .. } => ("a key is there twice", "remove one of them"),
        E::MultipleDocuments { .. } => (
            "a second YAML document begins here",
            "keep one document in the file, without a line of three hyphens in between",
        ),
        E::Budget { .. } => (
            "the document has more parts or deeper nesting than any policy",
            "make it smaller",
        ),
        E::AliasReplayCounterOverflow { .. }
        | E::AliasReplayLimitExceeded { .. }
        | E::AliasExpansionLimitExceeded { .. }
        | E::AliasReplayStackDepthExceeded { .. } => (
            "the aliases (*name) repeat more than a policy can hold",
            "write the values out",
        ),
        E::RecursiveReferencesRequireWeakTypes { .. } => (
            "an alias (*name) is used within its own anchor (&name)",
            "write the value out",
        ),
        E::UnknownAnchor { .. } => (
            "an alias (*name) has no anchor (&name) before it",
            "write the value out",
        ),
        E::Eof { .. } => ("the document ends too early", "close every bracket, brace and quote"),
        E::UnsupportedTag { .. } => ("YAML tags (!name) have no meaning in a policy", "remove the tag"),
        _ => (
            "this is not valid YAML",
            "check the indentation, and that brackets, braces and quotes are closed",
        ),
    };
    (what.to_owned(), hint)
}

impl Node {
    /// Moves every place in this node to where it is in the file.
    fn shift(&mut self, origin: Origin) {
        if matches!(origin, Origin::File) {
            return;
        }
        self.place = origin.place(self.place.line.into(), self.place.column.into());
        match &mut self.value {
            Value::List(items) => items.iter_mut().for_each(|item| item.shift(origin)),
            Value::Map(entries) => entries.iter_mut().for_each(|(key, value)| {
                key.shift(origin);
                value.shift(origin);
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {}
        }
    }
}

fn node(spanned: Spanned<Value>) -> Node {
    Node {
        place: Origin::File.place(spanned.referenced.line(), spanned.referenced.column()),
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

    fn complaint(text: &str) -> String {
        parse("c.yaml", text, Origin::File).unwrap_err().to_string()
    }

    #[test]
    fn everything_has_its_place() {
        let text = "version: v1\nsharing:\n  mps:\n    resources:\n    - {name: a, replicas: 10}\n";
        for (origin, moved) in [(Origin::File, (0, 0)), (Origin::Within { lines: 7, indent: 4 }, (7, 4))] {
            let at = |line: u32, column: u32| Place {
                line: line + moved.0,
                column: column + moved.1,
            };
            let doc = parse("c.yaml", text, origin).unwrap();
            let Value::Map(top) = &doc.value else { panic!("{doc:?}") };
            assert_eq!(top[1].0.place, at(2, 1));
            let Value::Map(sharing) = &top[1].1.value else { panic!() };
            let Value::Map(mps) = &sharing[0].1.value else { panic!() };
            let Value::List(list) = &mps[0].1.value else { panic!() };
            let Value::Map(entry) = &list[0].value else { panic!() };
            assert_eq!(entry[1].1.place, at(5, 27));
            assert!(matches!(&entry[1].1.value, Value::Number(n) if n == "10"));
        }
    }

    #[test]
    fn what_is_wrong_with_the_yaml_is_said_in_our_words_with_place_and_remedy() {
        let deep = format!("a: {}", "[".repeat(5000));
        for (text, place, says) in [
            ("a: 1\na: 2\n", "c.yaml:2:1", "\"a\" is there twice; remove"),
            (
                "a: 1\n---\nb: 2\n",
                "c.yaml:",
                "second YAML document begins here; keep one",
            ),
            (deep.as_str(), "c.yaml:", ";"),
            ("a: &x [*x]\n", "c.yaml:1:", "alias"),
            ("a: *x\n", "c.yaml:1:", "no anchor"),
            ("a: [1\nb: 2\n", "c.yaml:", "brackets"),
            ("a: \"x\n", "c.yaml:", "quote"),
            ("a: b: c\n", "c.yaml:1:", "indentation"),
        ] {
            let said = complaint(text);
            assert!(said.starts_with(place) && said.contains(says), "{said}");
            for theirs in [
                "DuplicateKeyPolicy",
                "from_str",
                "budget",
                "weak",
                "Options",
                "Spanned",
                "serde",
            ] {
                assert!(!said.contains(theirs), "{said}");
            }
        }
    }
}
