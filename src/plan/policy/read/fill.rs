//! Fills the types of a policy from a tree of YAML.
//!
//! serde-saphyr could fill them without a tree. But it does not accept keys in any letter case, as Go does and NVIDIA's
//! device plugin therefore too; its `Spanned` has no place for keys; and an error that a type raises has no place at
//! all.

use super::document::Document;
use crate::yaml::{Node, Value};
use serde::de::value::{SeqDeserializer, StrDeserializer};
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, Expected, MapAccess, SeqAccess, Visitor};
use serde::forward_to_deserialize_any;
use std::marker::PhantomData;
use tranche_core::error::Error;
use tranche_core::text::some;

/// What is wrong with a value.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Wrong {
    /// An error with its place.
    #[error("{0}")]
    Placed(Error),
    /// What a type says; the value around it knows the place.
    #[error("{0}")]
    Said(String),
    /// What a type expects instead of the value around it.
    #[error("expected {0}")]
    Expected(String),
}

impl de::Error for Wrong {
    fn custom<T: std::fmt::Display>(what: T) -> Self {
        Self::Said(what.to_string())
    }

    fn invalid_type(_: de::Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Expected(expected.to_string())
    }

    fn invalid_value(_: de::Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::Expected(expected.to_string())
    }

    fn unknown_variant(word: &str, expected: &'static [&'static str]) -> Self {
        Self::Said(format!("\"{word}\" is unknown; write {}", expected.join(" or ")))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Said(format!("{field} is missing"))
    }
}

/// The name for serde of [`crate::policy::Placed`], which is filled with the place of its value.
const PLACED: &str = "Placed";

/// Sections that are absent if they are empty: `mps: {}` is the same as `mps:`.
const SECTIONS: [&str; 4] = ["mps", "timeSlicing", "turns", "dedicated"];

/// Sections of NVIDIA's device plugin and of Kubernetes, in which unknown keys are skipped. [`super::parse_key`] warns
/// of those of the policy.
const LENIENT: [&str; 4] = ["the policy", "flags", "flags.plugin", "the ConfigMap"];

/// A value, from which a type is filled.
#[derive(Clone, Copy)]
pub(crate) struct Filler<'a> {
    document: &'a Document<'a>,
    node: &'a Node,
    /// The key of the value, for messages.
    name: &'static str,
}

impl<'a> Filler<'a> {
    pub(crate) fn of(document: &'a Document<'a>, node: &'a Node, name: &'static str) -> Self {
        Self { document, node, name }
    }

    /// Fills a type from this value.
    ///
    /// # Errors
    /// Returns a usage error with the place of the value, or of the value in it that is wrong.
    pub(crate) fn fill<T: Deserialize<'a>>(self) -> Result<T, Error> {
        self.seed(PhantomData).map_err(|wrong| match wrong {
            Wrong::Placed(error) => error,
            Wrong::Said(what) | Wrong::Expected(what) => self.document.wrong(self.node, what),
        })
    }

    fn seed<T: DeserializeSeed<'a>>(self, seed: T) -> Result<T::Value, Wrong> {
        let wrong = |what| Wrong::Placed(self.document.wrong(self.node, format!("{}: {what}", self.name)));
        seed.deserialize(self).map_err(|error| match error {
            Wrong::Placed(error) => Wrong::Placed(error),
            Wrong::Said(what) => wrong(what),
            Wrong::Expected(what) => wrong(format!("expected {what}, found {}", self.node.value)),
        })
    }

    fn text(&self) -> Result<&'a str, Wrong> {
        let text = self.node.value.text();
        text.ok_or_else(|| Wrong::Expected("one value".to_owned()))
    }

    /// The keys that have a value, under their names in `fields`. `section` is the name of the section for messages.
    fn keys(&self, section: &'static str, fields: &'static [&'static str]) -> Result<Keys<'a>, Wrong> {
        let entries = match &self.node.value {
            Value::Null => &[],
            Value::Map(entries) => entries.as_slice(),
            _ => {
                return Err(Wrong::Expected(
                    "keys with values (KEY: VALUE, one on each line)".to_owned(),
                ));
            }
        };
        let wrong = |key: &Node, what: String| Err(Wrong::Placed(self.document.wrong(key, what)));
        let mut names: Vec<&str> = Vec::new();
        let mut values = Vec::new();
        for (key, node) in entries {
            let Value::Text(name) = &key.value else {
                return wrong(
                    key,
                    format!("{section}: expected the name of a key, found {}", key.value),
                );
            };
            if let Some(other) = names.iter().find(|other| name.eq_ignore_ascii_case(other)) {
                let what = format!("{section}: \"{other}\" and \"{name}\" are the same key");
                return wrong(
                    key,
                    format!("{what}; the case of letters does not count; remove one of them"),
                );
            }
            names.push(name);
            match fields.iter().find(|field| name.eq_ignore_ascii_case(field)) {
                Some(_) if matches!(node.value, Value::Null) => {}
                Some(name) => values.push(Filler { node, name, ..*self }),
                None if LENIENT.contains(&section) => {}
                None => {
                    let hint = match nearest(name, fields) {
                        Some(near) => format!("did you mean {near}?"),
                        None => format!("known keys are {}", some(fields)),
                    };
                    return wrong(key, format!("\"{name}\" is unknown in {section}; {hint}"));
                }
            }
        }
        Ok(Keys(values.into_iter(), None))
    }
}

/// The known key that a person who wrote `name` may have meant.
pub(super) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let known = known.iter().map(|known| {
        let likeness = strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase());
        (likeness, *known)
    });
    known
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

impl<'de> Deserializer<'de> for Filler<'de> {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match number.parse() {
                Ok(number) => visitor.visit_u64(number),
                Err(_) => visitor.visit_str(number),
            },
            Value::Text(text) => visitor.visit_str(text),
            Value::List(items) => visitor.visit_seq(Items(self, items.iter())),
            Value::Map(_) => Err(de::Error::invalid_type(de::Unexpected::Map, &visitor)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.node.value {
            Value::Map(entries) if entries.is_empty() && SECTIONS.contains(&self.name) => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.node.value {
            Value::Bool(value) => visitor.visit_bool(*value),
            _ => Err(Wrong::Expected("true or false".to_owned())),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_str(self.text()?)
    }

    /// A number that is too large becomes the largest one: every field has a bound far below it.
    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let text = self.text()?;
        match text.parse::<u64>() {
            Ok(number) => visitor.visit_u32(u32::try_from(number).unwrap_or(u32::MAX)),
            Err(_) => Err(Wrong::Said(format!(
                "\"{text}\" is not a whole number; write digits only, like 4"
            ))),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        visitor.visit_enum(StrDeserializer::new(self.text()?))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.node.value {
            Value::List(items) => visitor.visit_seq(Items(self, items.iter())),
            _ => Err(Wrong::Expected("a list (a hyphen before each item)".to_owned())),
        }
    }

    /// A map whose keys are names that a person chooses.
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match &self.node.value {
            Value::Map(entries) => visitor.visit_map(Entries(self, entries.iter(), None)),
            _ => Err(Wrong::Expected(
                "names with values (NAME: VALUE, one on each line)".to_owned(),
            )),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        match name {
            PLACED => visitor.visit_seq(PlaceAndValue(self, false)),
            _ => visitor.visit_map(self.keys(name, fields)?),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u64 u128 f32 f64 char str bytes byte_buf unit unit_struct newtype_struct tuple
        tuple_struct identifier ignored_any
    }
}

/// The items of a list, which `0` is.
struct Items<'a>(Filler<'a>, std::slice::Iter<'a, Node>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Wrong;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Wrong> {
        let node = self.1.next();
        node.map(|node| Filler { node, ..self.0 }.seed(seed)).transpose()
    }
}

/// The values of a section that were not read yet, and the value whose key was read.
struct Keys<'a>(std::vec::IntoIter<Filler<'a>>, Option<Filler<'a>>);

impl<'de> MapAccess<'de> for Keys<'de> {
    type Error = Wrong;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Wrong> {
        self.1 = self.0.next();
        self.1
            .map(|value| seed.deserialize(StrDeserializer::new(value.name)))
            .transpose()
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Wrong> {
        let value = self
            .1
            .ok_or_else(|| Wrong::Said("a value was read before its key".to_owned()))?;
        value.seed(seed)
    }
}

/// The entries of a map, which `0` is, and the value whose name was read.
struct Entries<'a>(Filler<'a>, std::slice::Iter<'a, (Node, Node)>, Option<&'a Node>);

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Wrong;

    fn next_key_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Wrong> {
        let Some((name, value)) = self.1.next() else {
            return Ok(None);
        };
        self.2 = Some(value);
        Filler { node: name, ..self.0 }.seed(seed).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Wrong> {
        let node = self
            .2
            .ok_or_else(|| Wrong::Said("a value was read before its name".to_owned()))?;
        Filler { node, ..self.0 }.seed(seed)
    }
}

/// The fields of [`crate::policy::Placed`]: the place of a value, then the value. The flag says that the place was
/// read.
struct PlaceAndValue<'a>(Filler<'a>, bool);

impl<'de> SeqAccess<'de> for PlaceAndValue<'de> {
    type Error = Wrong;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Wrong> {
        if std::mem::replace(&mut self.1, true) {
            return self.0.seed(seed).map(Some);
        }
        let place = self.0.document.place(self.0.node);
        seed.deserialize(SeqDeserializer::new([place.line, place.column].into_iter()))
            .map(Some)
    }
}
