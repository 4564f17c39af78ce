//! A `config.json` as a JSON value. Fields that tranche does not know stay as they are, in their order.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use tranche_core::error::{Context, Error, Result};

/// Parses `bytes`.
///
/// # Errors
/// Returns an error if they are not a JSON object, or if an object in them has a key twice: runc takes the last one,
/// and crun the first, so the changed file would mean something else than the original.
pub(super) fn parse(bytes: &[u8]) -> Result<Value> {
    serde_json::from_slice::<UniqueKeys>(bytes).about("config.json", "does not parse")?;
    let value: Value = serde_json::from_slice(bytes).about("config.json", "does not parse")?;
    match value {
        Value::Object(_) => Ok(value),
        _ => Err(Error::failed("config.json", "is not a JSON object")),
    }
}

/// The bytes of `value`, in one line.
///
/// # Errors
/// Returns an error if it cannot be written, which no value that was parsed causes.
pub(super) fn bytes(value: &Value) -> Result<Vec<u8>> {
    serde_json::to_vec(value).about("config.json", "cannot be written as JSON")
}

/// Any JSON value in which no object has a key twice.
struct UniqueKeys;

impl<'de> Deserialize<'de> for UniqueKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_any(Checker)
    }
}

struct Checker;

impl<'de> Visitor<'de> for Checker {
    type Value = UniqueKeys;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> std::result::Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_u64<E>(self, _: u64) -> std::result::Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_i64<E>(self, _: i64) -> std::result::Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_f64<E>(self, _: f64) -> std::result::Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_unit<E>(self) -> std::result::Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_str<E>(self, _: &str) -> std::result::Result<UniqueKeys, E> {
        Ok(UniqueKeys)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<UniqueKeys, A::Error> {
        while list.next_element::<UniqueKeys>()?.is_some() {}
        Ok(UniqueKeys)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<UniqueKeys, A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            // With arbitrary precision, serde_json gives a number that no type holds as a map with one key.
            if key == NUMBER {
                map.next_value::<IgnoredAny>()?;
                return Ok(UniqueKeys);
            }
            map.next_value::<UniqueKeys>()?;
            if let Some(key) = seen.replace(key) {
                return Err(serde::de::Error::custom(format_args!("the key \"{key}\" occurs twice")));
            }
        }
        Ok(UniqueKeys)
    }
}

const NUMBER: &str = "$serde_json::private::Number";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_changed_is_written_as_it_was_read() {
        let text = r#"{"z":1.10,"a":[123456789012345678901234567890,1e+400,-0,null,true,"\u00e9\ud83d\ude00"],"b":{"x":{},"y":[]}}"#;
        let expected = text.replace(r"\u00e9\ud83d\ude00", "é😀");
        assert_eq!(bytes(&parse(text.as_bytes()).unwrap()).unwrap(), expected.as_bytes());
    }

    #[test]
    fn a_key_that_occurs_twice_is_refused_wherever_it_is() {
        for text in [
            r#"{"a":1,"b":2,"a":3}"#,
            r#"{"p":{"q":[{"a":1,"a":1}]}}"#,
            r#"{"a":1,"\u0061":2}"#,
        ] {
            let error = tranche_core::error::line(&parse(text.as_bytes()).unwrap_err());
            assert!(error.contains("the key \"a\" occurs twice"), "{error}");
        }
    }

    #[test]
    fn only_an_object_is_a_configuration() {
        for text in ["", "[]", "1", "{", r#"{"a":}"#, "{} {}", "\u{feff}{}"] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
