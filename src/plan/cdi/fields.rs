//! Fills the fields of a specification from its values, by the rules of Go's `encoding/json`.
//!
//! - The case of a field's name does not matter. If a field is there in two spellings, the one that is last in the
//!   order of bytes counts; maps under both spellings become one.
//! - A number or a truth value where a text belongs is that text, and a text is never a number or a truth value.

use super::scalar::Scalar;
use super::tree::{Key, Node, Value};
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;
use tranche_core::types::Place;

/// Why a value does not fit its field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Misfit {
    /// Where; `None` until the value is known.
    pub(super) at: Option<Place>,
    pub(super) what: String,
}

impl Misfit {
    /// The same error, at `at` unless its place is known.
    fn or_at(self, at: Place) -> Self {
        Self {
            at: self.at.or(Some(at)),
            ..self
        }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Misfit {}

impl de::Error for Misfit {
    fn custom<T: fmt::Display>(what: T) -> Self {
        Self {
            at: None,
            what: what.to_string(),
        }
    }
}

impl Node {
    fn misfit(&self, expected: &str) -> Misfit {
        Misfit {
            at: Some(self.at),
            what: format!("{} is not {expected}", self.kind()),
        }
    }

    fn scalar(&self, expected: &str) -> Result<&Scalar, Misfit> {
        match &self.value {
            Value::Scalar(scalar) => Ok(scalar),
            _ => Err(self.misfit(expected)),
        }
    }

    fn is_null(&self) -> bool {
        matches!(self.value, Value::Scalar(Scalar::Null))
    }

    /// The whole number here, if it fits. Nothing is 0.
    fn number<T: TryFrom<i128>>(&self) -> Result<T, Misfit> {
        let expected = "a whole number that fits";
        let number = match self.scalar(expected)? {
            Scalar::Null => Some(0),
            scalar => scalar.whole_number(),
        };
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| self.misfit(expected))
    }
}

/// The field of `fields` that `key` means, or else the key itself, which the caller refuses or skips.
fn field<'k>(key: &'k Key, fields: &'static [&'static str]) -> &'k str {
    let exact = fields.iter().find(|field| **field == key.name);
    exact
        .or_else(|| fields.iter().find(|field| key.means(field)))
        .map_or(&key.name, |field| field)
}

/// The entries of a map, with the name of the field in the place of each key, each field once.
fn by_field(entries: &[(Key, Node)], fields: &'static [&'static str]) -> Vec<(Key, Node)> {
    let mut sorted: Vec<&(Key, Node)> = entries.iter().collect();
    // Entries of one field become neighbours; in the file they are where people expect errors about them.
    sorted.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    let mut found: Vec<(Key, Node)> = Vec::new();
    for (key, value) in sorted {
        let name = field(key, fields);
        match found.iter_mut().find(|(known, _)| known.name == name) {
            Some((_, before)) => match (&mut before.value, &value.value) {
                (Value::Map(before), Value::Map(more)) => before.extend(more.iter().cloned()),
                _ => *before = value.clone(),
            },
            None => found.push((
                Key {
                    at: key.at,
                    name: name.to_owned(),
                },
                value.clone(),
            )),
        }
    }
    found.sort_by_key(|(key, _)| key.at);
    found
}

macro_rules! numbers {
    ($($method:ident => $visit:ident: $type:ty),* $(,)?) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
            visitor.$visit(self.number::<$type>()?)
        })*
    };
}

impl<'de> Deserializer<'de> for &Node {
    type Error = Misfit;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match &self.value {
            Value::Scalar(Scalar::Null) => visitor.visit_unit(),
            Value::Scalar(_) => self.deserialize_string(visitor),
            Value::List(_) => self.deserialize_seq(visitor),
            Value::Map(_) => self.deserialize_map(visitor),
        }
    }

    numbers!(
        deserialize_i64 => visit_i64: i64,
        deserialize_u32 => visit_u32: u32,
    );

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.scalar("true or false")? {
            Scalar::Bool(value) => visitor.visit_bool(*value),
            Scalar::Null => visitor.visit_bool(false),
            _ => Err(self.misfit("true or false")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_string(self.scalar("a text")?.clone().into_text())
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.deserialize_string(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match self.is_null() {
            true => visitor.visit_none(),
            false => visitor.visit_some(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        match &self.value {
            Value::List(items) => visitor.visit_seq(Items(items.iter())),
            _ => Err(self.misfit("a list")),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        self.deserialize_struct("", &[], visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misfit> {
        let Value::Map(entries) = &self.value else {
            return Err(self.misfit("a map"));
        };
        let entries = by_field(entries, fields);
        let entries = Entries {
            rest: entries.iter(),
            value: None,
        };
        visitor.visit_map(entries).map_err(|error| error.or_at(self.at))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misfit> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i128 u8 u16 u64 u128 f32 f64 char bytes byte_buf unit unit_struct newtype_struct tuple tuple_struct enum
        identifier
    }
}

struct Items<'n>(std::slice::Iter<'n, Node>);

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Misfit;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Misfit> {
        let Some(node) = self.0.next() else {
            return Ok(None);
        };
        seed.deserialize(node).map(Some).map_err(|error| error.or_at(node.at))
    }
}

struct Entries<'n> {
    rest: std::slice::Iter<'n, (Key, Node)>,
    value: Option<&'n Node>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Misfit;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Misfit> {
        let Some((key, value)) = self.rest.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        let name: StrDeserializer<'_, Misfit> = key.name.as_str().into_deserializer();
        seed.deserialize(name).map(Some).map_err(|error| error.or_at(key.at))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Misfit> {
        let value = self
            .value
            .take()
            .ok_or_else(|| de::Error::custom("a value is missing"))?;
        seed.deserialize(value).map_err(|error| error.or_at(value.at))
    }
}
